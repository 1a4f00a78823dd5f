-- ACQUIRE with at least one resource in shared mode. Locks all resources for a token, or none. Returns
-- the same as acquire.lua.
--
-- KEYS: for each resource the lock key, the fence key, the queue, and the readers (see readers.lua).
-- ARGV: as in acquire.lua.

--- fence.lua
-- Fast path: one resource, no waiters. A reader that is listed already is left to what follows.
if #KEYS == 4 and not is_queued then
  local lock, readers, is_granted = KEYS[1], KEYS[4], false
  local value = redis.pcall('GET', lock)
  local till = string.format('%.0f', math.floor(now / 1000) + ttl)
  if value == MARKER then
    local added = redis.pcall('ZADD', readers, 'NX', till, token)
    if type(added) == 'table' then return added end
    is_granted = added == 1
    if is_granted and redis.call('PTTL', lock) < tonumber(ttl) then
      redis.call('PEXPIREAT', lock, till)
    end
    -- The set has no ttl yet if it was deleted or evicted before.
    if is_granted and redis.call('PTTL', readers) < tonumber(ttl) then
      redis.call('PEXPIREAT', readers, till)
    end
    if now % 32 == 0 then redis.call('ZREMRANGEBYSCORE', readers, '-inf', math.floor(now / 1000)) end
  elseif not value then
    redis.call('DEL', readers)
    redis.call('ZADD', readers, till, token)
    redis.call('SET', lock, MARKER)
    redis.call('PEXPIREAT', lock, till)
    redis.call('PEXPIREAT', readers, till)
    is_granted = true
  end
  if is_granted then
    local text = fence == proposal and ARGV[3] or string.format('%.0f', fence)
    redis.call('SET', KEYS[2], text, 'PX', memory)
    return {1, fence, now}
  end
end

--- readers.lua
-- Read everything that can fail first, as above.
local is_free, is_own, holder, longest_held = true, false, '', 0
local held, is_read = {}, {}
for i = 1, #KEYS, 4 do
  local lock, readers = KEYS[i], KEYS[i + 3]
  local value, till = redis.pcall('GET', lock), false
  if readers ~= lock then
    till = redis.pcall('ZSCORE', readers, token)
    if type(till) == 'table' then return till end
  end
  held[i] = value
  if value == MARKER and readers ~= lock then
    held[i], is_read[i] = false, true
    is_own = is_own or (till and tonumber(till) > clock)
  elseif value then
    is_free = false
    is_own = is_own or value == token
    local pttl = redis.call('PTTL', lock)
    -- PTTL is 0 if the key expires within the current millisecond; wait at least 1 ms.
    local free_in = pttl < 0 and math.huge or math.max(pttl, 1)
    if free_in > longest_held then
      longest_held = free_in
      holder = type(value) == 'string' and string.sub(value, 1, MAX_TOKEN + 1) or ''
    end
  end
end
if is_own then return {2, 0} end

-- One ACQUIRE in 32 removes shares that have expired, those of readers that crashed. They are harmless.
local function lock_all()
  local text = string.format('%.0f', fence)
  for i = 1, #KEYS, 4 do
    local lock, readers = KEYS[i], KEYS[i + 3]
    if readers == lock then
      redis.call('SET', lock, token, 'PX', ttl)
    elseif is_read[i] then
      if now % 32 == 0 then redis.call('ZREMRANGEBYSCORE', readers, '-inf', clock) end
      join_readers(lock, readers, token, tonumber(ttl))
    else
      begin_reading(lock, readers, token, tonumber(ttl))
    end
    redis.call('SET', KEYS[i + 1], text, 'PX', memory)
  end
end

if is_free and not is_queued then
  lock_all()
  return {1, fence, now}
end

--- queue.lua

local turn, kept, waiter = tonumber(ARGV[5]), ARGV[6], ARGV[7]
local ticket, keep = tonumber(ARGV[8]), tonumber(ARGV[9])
local longest, is_notified = longest_held, {}
local function name(i) return waiter and KEYS[i + 3] ~= KEYS[i] and reader_name(waiter) or waiter end
for i = 1, #KEYS, 4 do
  local lock, queue, is_reader = KEYS[i], KEYS[i + 2], KEYS[i + 3] ~= KEYS[i]
  local first = redis.pcall('ZRANGE', queue, 0, 0, 'WITHSCORES')
  local score, wait = tonumber(first[2] or 0), 0
  if is_reader then
    local own = waiter and redis.pcall('ZSCORE', queue, name(i))
    is_notified[i] = type(own) == 'string' and tonumber(own) < 0
    if not is_notified[i] then
      -- The turns of readers keep only writers away.
      if not reads(first[1]) then wait = math.ceil(left(score, now) / 1000) end
      if is_read[i] and writer_waits(queue, ticket, now) then
        -- The waiter tries again soon, to notice a writer that is gone.
        local retry = turn and math.ceil(turn / 1000) or redis.call('PTTL', lock)
        wait = math.max(wait, retry, 1)
      end
    end
  elseif score < 0 and first[1] == waiter then
    is_notified[i] = true
  else
    wait = math.ceil(left(score, now) / 1000)
  end
  longest = math.max(longest, wait)
end

if longest == 0 then
  lock_all()
  for i = 1, #KEYS, 4 do
    local lock, queue = KEYS[i], KEYS[i + 2]
    if waiter then redis.pcall('ZREM', queue, name(i)) end
    if waiter and KEYS[i + 3] ~= lock then invite_readers(lock, queue, turn, kept) end
  end
  return {1, fence, now}
end

local rank = -1
if ticket then
  for i = 1, #KEYS, 4 do
    local lock, queue, own = KEYS[i], KEYS[i + 2], name(i)
    if not is_notified[i] or held[i] then
      put(queue, ticket, own, kept)
    elseif keep > 0 then
      put(queue, -(now + keep), own, kept)
    else
      -- See acquire.lua.
      redis.pcall('ZREM', queue, own)
      if is_read[i] then
        invite_readers(lock, queue, turn, kept)
      else
        notify_next(lock, queue, false, turn, kept)
      end
    end
    local before = redis.pcall('ZRANK', queue, own)
    if type(before) == 'number' then rank = math.max(rank, before) end
  end
end
return {0, longest < math.huge and longest or -1, now, rank, holder}
