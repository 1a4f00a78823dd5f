export * from './fastify.js'
