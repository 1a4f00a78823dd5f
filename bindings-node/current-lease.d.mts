export * from './current-lease.js'
