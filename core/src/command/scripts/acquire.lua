-- ACQUIRE: {1, fence, the time in microseconds} if all resources were free; {2, 0} if this very token
-- holds one; else {0, for how many milliseconds (-1: for ever), the time in microseconds, how many waiters
-- are before (-1: none is known)}.
--
-- KEYS: of each resource the lock key, the fence key and the queue.
-- ARGV: the token, its ttl, the proposal, the ttl of the fence key at least. If a waiter tries, also: for how many
-- microseconds a waiter that is called goes first, for how many milliseconds a queue is kept, the
-- waiter, its ticket (or '', if it does not join), and for how many microseconds it keeps what is free.

local token, ttl, proposal, memory = ARGV[1], ARGV[2], tonumber(ARGV[3]), ARGV[4]
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]

-- Everything that can fail is read before the first write, so an error means that nothing was done.
local fence, is_queued = 0, false
for i = 1, #KEYS, 3 do
  local last = redis.pcall('GET', KEYS[i + 1]) or '0'
  if type(last) == 'table' then return last end
  last = tonumber(last)
  if not last then
    return redis.error_reply('ERR the fence key ' .. KEYS[i + 1] .. ' holds a foreign value')
  end
  if last >= fence then fence = last + 1 end
  is_queued = redis.pcall('EXISTS', KEYS[i + 2]) == 1 or is_queued
end
-- A node does not follow a proposal that is far from its own clock, and never falls back to a small number.
local floor = math.abs(proposal - now) <= FENCE_WINDOW and proposal or now
if floor > fence then fence = floor end
if fence >= FENCE_LIMIT then
  return redis.error_reply('ERR the fence key ' .. KEYS[2] .. ' is used up')
end

-- A counter is forgotten only when the clock has passed it.
if fence - now > FENCE_WINDOW then memory = memory + math.ceil((fence - now) / 1000) end

-- Mostly it is one, nobody waits, and the fence is the proposal, whose text need not be made anew. Nil for
-- a key of any type, so a foreign value is simply held.
if #KEYS == 3 and not is_queued and redis.call('SET', KEYS[1], token, 'NX', 'PX', ttl) then
  local text = fence == proposal and ARGV[3] or string.format('%.0f', fence)
  redis.call('SET', KEYS[2], text, 'PX', memory)
  return {1, fence, now}
end

--- queue.lua

local call, kept, waiter = tonumber(ARGV[5]), ARGV[6], ARGV[7]
local ticket, keep = tonumber(ARGV[8]), tonumber(ARGV[9])
local longest, is_own, is_called, is_held = 0, false, {}, {}
for i = 1, #KEYS, 3 do
  local wait = 0
  local first = redis.pcall('ZRANGE', KEYS[i + 2], 0, 0, 'WITHSCORES')
  local score = tonumber(first[2] or 0)
  if score < 0 and first[1] == waiter then
    is_called[i] = true
  else
    wait = math.ceil(left(score, now) / 1000)
  end
  local pttl = redis.call('PTTL', KEYS[i])
  if pttl ~= -2 then
    is_held[i] = true
    is_own = is_own or redis.pcall('GET', KEYS[i]) == token
    -- A key may expire within a millisecond.
    wait = pttl < 0 and math.huge or math.max(wait, pttl, 1)
  end
  longest = math.max(longest, wait)
end
if is_own then return {2, 0} end

-- All or none.
if longest == 0 then
  for i = 1, #KEYS, 3 do
    redis.call('SET', KEYS[i], token, 'PX', ttl)
    redis.call('SET', KEYS[i + 1], string.format('%.0f', fence), 'PX', memory)
    if waiter then redis.pcall('ZREM', KEYS[i + 2], waiter) end
  end
  return {1, fence, now}
end

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
return {0, longest < math.huge and longest or -1, now, rank}
