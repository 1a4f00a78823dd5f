// The lease that the caller holds, for functions that do not get it as a parameter. Programs that do not import this module
// do without the tracking.

'use strict'

const { currentLease, trackAll } = require('./holding.js')

trackAll()

module.exports = { currentLease }
