#!/usr/bin/env node
// The `quorlock` command. It runs entirely in the addon, within this process.

'use strict'

const native = require('#native')

process.exitCode = native.commandLine(process.argv.slice(2))
