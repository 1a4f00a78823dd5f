// Which lease the caller holds: that of the innermost function given to `using` or `elect` around it.

'use strict'

/** Undefined until somebody asks: Node.js before version 24 makes the promises of the whole process slower from then on. */
let holding

function startTracking() {
  const { AsyncLocalStorage } = require('node:async_hooks')
  holding ??= new AsyncLocalStorage()
}

/** Calls `work`, and resolves to its result. Meanwhile `currentLease` returns the lease to it and to what it starts. */
async function runHolding(lease, work) {
  if (!holding) return work()
  const block = { lease, outer: innermost() }
  try {
    return await holding.run(block, work)
  } finally {
    // Whatever the block has started, such as a timer, still refers to it.
    block.lease = undefined
  }
}

/** Returns the innermost block around the caller that has not ended. */
function innermost() {
  let block = holding.getStore()
  while (block && !block.lease) block = block.outer
  // Leaves out all other blocks that have ended. Otherwise each in a chain of blocks that start one another would keep all
  // before it.
  for (let open = block; open; open = open.outer) {
    while (open.outer && !open.outer.lease) open.outer = open.outer.outer
  }
  return block
}

function currentLease() {
  const block = innermost()
  if (block) return block.lease
  throw new Error('no lock is held here: currentLease needs `using`, `elect` or @Locked around it')
}

module.exports = { currentLease, runHolding, startTracking }
