export * from './opentelemetry.js'
