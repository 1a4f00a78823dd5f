#!/usr/bin/env node
// The `quorlock` command: the native part does all of it, in this process.

import { createRequire } from 'node:module'

const native = createRequire(import.meta.url)('./quorlock.node')

process.exitCode = native.commandLine(process.argv.slice(2))
