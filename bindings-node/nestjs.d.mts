export * from './nestjs.js'
