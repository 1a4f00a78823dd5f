#!/usr/bin/env node
// The `quorlock` command: the native part does all of it, in this process.

import native from './native.js'

process.exitCode = native.commandLine(process.argv.slice(2))
