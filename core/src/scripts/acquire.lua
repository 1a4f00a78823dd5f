-- ACQUIRE: {1, fence} if all resources were free; {2, 0} if this very token holds one; else {0, for how
-- many milliseconds (-1: for ever), the time in microseconds, how many waiters are before (-1: none is
-- known)}.
--
-- KEYS: of each resource the lock key, the fence key and the queue.
-- ARGV: the token, its ttl, the proposal, the ttl of the fence key; the waiter (or ''), its ticket (or
-- '', if it does not wait); for how many microseconds a waiter that is called goes first, for how many
-- milliseconds a queue is kept, and for how many microseconds this waiter keeps what is free.

local token, ttl, proposal, memory = ARGV[1], ARGV[2], tonumber(ARGV[3]), ARGV[4]
local waiter, ticket, call, kept = ARGV[5], tonumber(ARGV[6]), tonumber(ARGV[7]), ARGV[8]
local keep = tonumber(ARGV[9])
local now = clock()

-- Everything that can fail is read before the first write, so an error means that nothing was done.
local fence = 0
for i = 1, #KEYS, 3 do
  local last = redis.pcall('GET', KEYS[i + 1]) or '0'
  if type(last) == 'table' then return last end
  if not tonumber(last) then
    return redis.error_reply('ERR the fence key ' .. KEYS[i + 1] .. ' holds a foreign value')
  end
  fence = math.max(fence, tonumber(last) + 1)
end
if proposal <= now + MAX_CLOCK_LEAD and proposal > fence then fence = proposal end
if fence >= FENCE_LIMIT then
  return redis.error_reply('ERR the fence key ' .. KEYS[2] .. ' is used up')
end

local is_free, left, is_own = true, 0, false
local function refuse(milliseconds)
  is_free = false
  left = (left < 0 or milliseconds < 0) and -1 or math.max(left, milliseconds)
end
local function held(lock)
  is_own = is_own or redis.pcall('GET', lock) == token
  refuse(redis.call('PTTL', lock))
end

local is_called, is_held = {}, {}
for i = 1, #KEYS, 3 do
  local first = redis.pcall('ZRANGE', KEYS[i + 2], 0, 0, 'WITHSCORES')
  local score = tonumber(first[2] or 0)
  if score < 0 and first[1] == waiter then
    is_called[i] = true
  elseif -score > now then
    refuse(math.ceil((-score - now) / 1000))
  end
end
-- Several are taken together or not at all.
if #KEYS > 3 or not is_free then
  for i = 1, #KEYS, 3 do
    is_held[i] = redis.call('EXISTS', KEYS[i]) == 1
    if is_held[i] then held(KEYS[i]) end
  end
end
if is_free then
  for i = 1, #KEYS, 3 do
    -- Nil for a key of any type, so a foreign value is simply held.
    if redis.call('SET', KEYS[i], token, 'NX', 'PX', ttl) then
      redis.call('SET', KEYS[i + 1], string.format('%.0f', fence), 'PX', memory)
      if waiter ~= '' then redis.pcall('ZREM', KEYS[i + 2], waiter) end
    else
      held(KEYS[i])
      is_held[i] = true
    end
  end
end
if is_own then return {2, 0} end
if is_free then return {1, fence} end

local rank = -1
if ticket then
  for i = 1, #KEYS, 3 do
    local lock, queue = KEYS[i], KEYS[i + 2]
    if not is_called[i] or is_held[i] then
      put(queue, ticket, waiter, kept)
    elseif keep > 0 then
      put(queue, -(now + keep), waiter, kept)
    else
      -- It cannot use its turn, for want of another resource. It comes back when it tries again.
      redis.pcall('ZREM', queue, waiter)
      call_next(lock, queue, false, call, kept)
    end
    local before = redis.pcall('ZRANK', queue, waiter)
    if type(before) == 'number' then rank = math.max(rank, before) end
  end
end
return {0, left, now, rank}
