-- ACQUIRE with at least one resource in shared mode. Locks all resources for a token, or none. Returns
-- the same as ../acquire.lua.
--
-- KEYS: for each resource the lock key, the fence key, the queue, and the readers (see readers.lua).
-- ARGV: as in ../acquire.lua.

-- The remaining ttl of a lock key is read before the clock: see readers.lua. For one resource, this script
-- uses no tables, because tables cost time.
local value, remains = redis.pcall('GET', KEYS[1]), -2
if value then remains = redis.call('PTTL', KEYS[1]) end
local held, pttl
if #KEYS > 4 then
  held, pttl = {value}, {[KEYS[1]] = remains}
  for i = 5, #KEYS, 4 do
    held[i] = redis.pcall('GET', KEYS[i])
    pttl[KEYS[i]] = held[i] and redis.call('PTTL', KEYS[i]) or -2
  end
end

--- fence.lua
-- Fast path: one resource, no waiters. If the token already has a share, the general path below answers. If
-- the server refuses a command, this path undoes its writes.
if #KEYS == 4 and KEYS[4] ~= KEYS[1] and not is_queued then
  local lock, readers, clock, is_granted = KEYS[1], KEYS[4], math.floor(now / 1000), false
  local text = fence == proposal and ARGV[3] or string.format('%.0f', fence)
  local till = string.format('%.0f', clock + ttl)
  if value == MARKER then
    -- A key without a ttl (-1) gets the longest ttl.
    local is_short, kept = remains < tonumber(ttl), nil
    if is_short then redis.call('PEXPIRE', lock, remains == -1 and LONGEST_TTL or ttl) end
    local done = redis.pcall('ZADD', readers, 'NX', till, token)
    if done == 1 then
      -- The set may be new, with no ttl (-1): the old set was evicted, or expired while the server was paused.
      kept = redis.call('PTTL', readers)
      if kept < tonumber(ttl) then done = redis.pcall('PEXPIRE', readers, ttl) end
      if done == 1 then done = redis.pcall('SET', KEYS[2], text, 'PX', memory) end
      is_granted = type(done) == 'table' and not done.err
    end
    if not is_granted then
      if kept then
        redis.call('ZADD', readers, 'XX', '0', token)
        redis.pcall('ZREMRANGEBYSCORE', readers, '-inf', '0')
        if kept >= 0 then redis.pcall('PEXPIRE', readers, math.max(kept, 1)) end
      end
      if is_short then redis.call('PEXPIRE', lock, remains == -1 and LONGEST_TTL or math.max(remains, 1)) end
      if type(done) == 'table' then return done end
    elseif now % 32 == 0 then
      -- Expired shares of crashed readers are harmless, so only one ACQUIRE in 32 removes them.
      redis.pcall('ZREMRANGEBYSCORE', readers, '-inf', clock)
    end
  elseif not value then
    -- A full server refuses the first write of a script if this write needs memory. So SET comes first: if
    -- SET is refused, nothing has changed.
    redis.call('SET', lock, MARKER, 'PX', ttl)
    local done = redis.pcall('ZREMRANGEBYSCORE', readers, '-inf', '+inf')
    if type(done) == 'number' then done = redis.pcall('ZADD', readers, till, token) end
    if type(done) == 'number' then done = redis.pcall('PEXPIRE', readers, ttl) end
    if type(done) == 'table' then
      redis.pcall('ZREMRANGEBYSCORE', readers, '-inf', '+inf')
      redis.call('DEL', lock)
      return done
    end
    redis.call('SET', KEYS[2], text, 'PX', memory)
    is_granted = true
  end
  if is_granted then return reply end
end

--- readers.lua
--- tries.lua
-- The keys of the readers are checked before the first write, so an error means that nothing was changed.
held, pttl = held or {value}, pttl or {[KEYS[1]] = remains}
local is_free, is_own, holder, longest_held = true, false, '', 0
local is_read = {}
for i = 1, #KEYS, 4 do
  local lock, readers, value, till = KEYS[i], KEYS[i + 3], held[i], false
  if readers ~= lock then
    till = redis.pcall('ZSCORE', readers, token)
    if type(till) == 'table' then return till end
  end
  if value == MARKER and readers ~= lock then
    held[i], is_read[i] = false, true
    is_own = is_own or (till and tonumber(till) > clock)
  elseif value then
    is_free = false
    is_own = is_own or value == token
    -- PTTL is 0 in the last millisecond of a key. The key is still held, so wait at least 1 ms.
    local free_in = pttl[lock] < 0 and math.huge or math.max(pttl[lock], 1)
    if free_in > longest_held then
      longest_held = free_in
      holder = type(value) == 'string' and string.sub(value, 1, MAX_TOKEN + 1) or ''
    end
  end
end
if is_own then return {2, 0} end

-- Locks all resources. Returns an error if a command is refused; in that case, nothing was locked.
local function lock_all()
  for i = 1, #KEYS, 4 do
    local error = first_error({keep_value(KEYS[i])}) or cannot_change(KEYS[i], KEYS[i + 3])
    if error then return error end
  end
  local text = string.format('%.0f', fence)
  for i = 1, #KEYS, 4 do
    local lock, readers = KEYS[i], KEYS[i + 3]
    if readers == lock then
      redis.call('SET', lock, token, 'PX', ttl)
    elseif is_read[i] then
      if now % 32 == 0 then redis.pcall('ZREMRANGEBYSCORE', readers, '-inf', clock) end
      join_readers(lock, readers, token, tonumber(ttl))
    else
      begin_reading(lock, readers, token, tonumber(ttl))
    end
    redis.call('SET', KEYS[i + 1], text, 'PX', memory)
  end
end

if is_free and not is_queued then return lock_all() or reply end

local queue_argument = ARGV[5]
--- queue.lua

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
      -- The turn of another reader blocks only writers, not this reader.
      if not reads(first[1]) then wait = math.ceil(left(score) / 1000) end
      if is_read[i] and writer_waits(queue, ticket) then
        -- The writer may stop waiting without notifying this reader, so this reader must try again soon.
        local retry = turn and math.ceil(turn / 1000) or pttl[lock]
        wait = math.max(wait, retry, 1)
      end
    end
  elseif score < 0 and first[1] == waiter then
    is_notified[i] = true
  else
    wait = math.ceil(left(score) / 1000)
  end
  longest = math.max(longest, wait)
end

if longest == 0 then
  local error = lock_all()
  if error then return error end
  for i = 1, #KEYS, 4 do
    local lock, queue = KEYS[i], KEYS[i + 2]
    if waiter then redis.pcall('ZREM', queue, name(i)) end
    if waiter and KEYS[i + 3] ~= lock then invite_readers(lock, queue) end
  end
  return reply
end

local rank = -1
if ticket then
  for i = 1, #KEYS, 4 do
    local lock, queue, own = KEYS[i], KEYS[i + 2], name(i)
    if not is_notified[i] or held[i] then
      put(queue, ticket, own)
    elseif reserve > 0 then
      put(queue, -(now + reserve), own)
    else
      -- The next waiters get the turn: see ../acquire.lua.
      redis.pcall('ZREM', queue, own)
      if is_read[i] then
        invite_readers(lock, queue)
      else
        notify_next(lock, queue, false)
      end
    end
    local before = redis.pcall('ZRANK', queue, own)
    if type(before) == 'number' then rank = math.max(rank, before) end
  end
end
return {0, longest < math.huge and longest or -1, now, rank, holder}
