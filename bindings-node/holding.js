// The blocks that the caller is in: the functions given to `using` or `elect` around it, each with its lease.

'use strict'

const { AsyncLocalStorage } = require('node:async_hooks')

/** Made when it is needed: Node.js before version 24 makes the promises of the whole process slower from then on. */
let blocks
let tracksAll = false

function trackAll() {
  tracksAll = true
}

/**
 * Calls `work`, and resolves to its result. Meanwhile, the block is open for it and for what it starts, if all blocks are
 * tracked, or if this one has a `shared` lease: then it has these properties, too.
 */
async function runHolding(lease, work, shared) {
  if (!tracksAll && !shared) return work()
  blocks ??= new AsyncLocalStorage()
  const block = { ...shared, lease }
  // Leaves out blocks that have ended. Otherwise each in a chain of blocks that start one another would keep all before it.
  const open = [block, ...openBlocks()]
  try {
    return await blocks.run(open, work)
  } finally {
    // Whatever the block has started, such as a timer, still refers to it.
    block.client = block.lease = undefined
  }
}

/** Returns the blocks around the caller that have not ended, innermost first. */
const openBlocks = () => blocks?.getStore()?.filter(({ lease }) => lease) ?? []

function currentLease() {
  const [block] = openBlocks()
  if (block) return block.lease
  throw new Error('no lock is held here: currentLease needs `using`, `elect` or @Locked around it')
}

module.exports = { currentLease, openBlocks, runHolding, trackAll }
