#!/usr/bin/env node
// The `quorlock` command. It runs entirely in the addon, within this process.

import native from './native.js'

process.exitCode = native.commandLine(process.argv.slice(2))
