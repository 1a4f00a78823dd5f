// The diagnostics channels: a channel for each level of the log, and the tracing channel of acquires.

'use strict'

const native = require('#native')
const { channel, tracingChannel } = require('node:diagnostics_channel')

/** The log levels, from the most to the least severe. Each has a channel. */
const levels = ['error', 'warn', 'info', 'debug', 'trace']
const channels = levels.map((level) => channel(`quorlock:${level}`))
const acquiring = tracingChannel('quorlock:acquire')

const log = new native.Log((records) => {
  for (const { level, target, name, text, time, fields } of JSON.parse(records)) {
    const record = { level: levels[level - 1], target, name, message: text, time: new Date(time * 1e3), ...fields }
    channels[level - 1].publish(record)
  }
})
let listening = 0

/** Calls `acquire` within the tracing channel of acquires. */
function traceAcquire(acquire, client, resources) {
  return acquiring.hasSubscribers ? acquiring.tracePromise(acquire, { client, resources }) : acquire()
}

/**
 * Sets the core's log level to the least severe level whose channel has a subscriber. The core
 * skips less severe events.
 */
function listen() {
  let level = channels.length
  while (level > 0 && !channels[level - 1].hasSubscribers) level--
  if (level !== listening) log.listen((listening = level))
}

module.exports = { listen, traceAcquire }
