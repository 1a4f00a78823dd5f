-- RELEASE and UNDO with at least one resource in shared mode. Returns the same as ../release.lua.
--
-- KEYS: for each resource the lock key, the queue, and the readers (see readers.lua).
-- ARGV: as in ../release.lua.

-- Fast path: one resource, no waiters.
if #KEYS == 3 and not ARGV[3] and redis.pcall('EXISTS', KEYS[2]) ~= 1
  and redis.pcall('GET', KEYS[1]) == MARKER then
  local lock, readers = KEYS[1], KEYS[3]
  local later = redis.pcall('ZREVRANK', readers, ARGV[1])
  if not later then return 0 end
  if type(later) ~= 'number' then return later end
  -- If this share expires last, the keys need to last only until the second-to-last share expires.
  local last = later == 0 and redis.call('ZRANGE', readers, -2, -2, 'WITHSCORES')
  if last and not last[1] then
    redis.call('DEL', lock, readers)
    return 1
  end
  redis.call('ZREM', readers, ARGV[1])
  if last then
    -- If PEXPIREAT is not permitted, the keys expire later than necessary. This only makes writers wait for longer.
    redis.pcall('PEXPIREAT', lock, last[2])
    redis.pcall('PEXPIREAT', readers, last[2])
  end
  return 1
end

--- pttl.lua
--- clock.lua
--- readers.lua
--- tries.lua
local queue_argument = ARGV[2]
--- queue.lua

local token, keep, done = ARGV[1], ARGV[3] ~= '0' and tonumber(ARGV[3]), 1
for i = 1, #KEYS, 3 do
  local lock, readers = KEYS[i], KEYS[i + 2]
  local has = redis.pcall('GET', lock)
  local error = nil
  if has == token then
    error = first_error({keep_expiry(lock)})
  elseif has == MARKER and readers ~= lock and redis.pcall('ZSCORE', readers, token) then
    -- A full server refuses ZADD as the first write of a script, so ZREM is tried first.
    error = first_error({{'ZREM', readers, ''}, {'ZRANGE', readers, '0', '0'}, keep_expiry(lock)})
      or keep and first_error({{'ZSCORE', readers, ''}, {'ZADD', readers, 'XX', '0', ''}})
    -- A key of another type has no shares, so this error does not matter.
    if error and string.find(error.err, 'WRONGTYPE', 1, true) then error = nil end
  end
  if error then return error end
end
for i = 1, #KEYS, 3 do
  local lock, queue, readers = KEYS[i], KEYS[i + 1], KEYS[i + 2]
  local is_held = false
  if redis.pcall('GET', lock) == token then
    is_held = true
    expire_in(lock, keep or 0)
  elseif readers ~= lock and keep and share(lock, readers, token) then
    is_held = true
    put_share(readers, token, keep)
    fit_expiry(lock, readers)
  elseif readers ~= lock then
    is_held = stop_reading(lock, readers, token)
  end
  if not is_held then done = 0 end
  if ticket then
    put(queue, ticket, readers ~= lock and reader_name(waiter) or waiter)
  elseif waiter then
    leave(queue)
  end
  if redis.pcall('EXISTS', queue) == 1 then
    if redis.pcall('EXISTS', lock) == 0 then
      notify_next(lock, queue, is_held)
    else
      invite_readers(lock, queue)
    end
  end
end
return done
