-- Tries the commands that change a resource with readers (see readers.lua). A script does this before its
-- first write, so that an error means that nothing has changed.

-- Tries commands, and returns the error of the first one that is refused; nil if none is refused. Must be
-- called before the first write. The commands must not end a lock or a share, so that all locks and shares
-- are still valid if a command is refused.
local function first_error(commands)
  for _, command in ipairs(commands) do
    local reply = redis.pcall(unpack(command))
    if type(reply) == 'table' and reply.err then return reply end
  end
end

-- A command to try: sets the ttl of a lock key to the remaining ttl, but to at least a millisecond, so that
-- the command deletes no key.
local function keep_expiry(lock)
  return {'PEXPIRE', lock, string.format('%.0f', lasting(lock, 1))}
end

-- A command to try: a SET that does nothing, because its condition (XX or NX) is false. A full server refuses this SET
-- only if it is the first write of a script. Scripts that store new tokens try it first, so a full server refuses those
-- scripts. EXTEND, RELEASE and DOWNGRADE do not try it first, so they work on a full server.
local function keep_value(lock)
  return {'SET', lock, MARKER, pttl[lock] == -2 and 'XX' or 'NX', 'PX', '1'}
end

-- Tries all commands that may change a resource. Returns the error if a command is refused; else nil.
local function cannot_change(lock, readers)
  if readers == lock then return first_error({keep_expiry(lock), keep_value(lock)}) end
  return first_error({
    {'ZRANGE', readers, '0', '0'}, {'ZSCORE', readers, ''}, keep_expiry(lock), {'ZADD', readers, 'XX', '0', ''},
    {'ZREM', readers, ''}, {'ZREMRANGEBYSCORE', readers, '+inf', '-inf'}, keep_value(lock),
  })
end
