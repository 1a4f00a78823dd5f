-- ACQUIRE: locks all resources for a token, or none. Returns one of:
--   time                                 granted with the proposed fence
--   {1, fence, time}                     granted with another fence
--   {2, 0}                               the token already holds a resource
--   {0, expires_in, time, rank, holder}  refused
--
-- `time` is the node's clock in microseconds. `expires_in` is in milliseconds (-1: never). `rank` is the number of
-- waiters ahead of this waiter in the queue (-1: the request does not join a queue). `holder` is the value of the lock
-- key that expires last ('' if no lock key exists, or if the value is not a string). A value longer than any token is
-- cut to one byte more than the longest token.
--
-- KEYS: for each resource the lock key, the fence key and the queue.
-- ARGV: the token, the ttl of the lock, the proposed fence, and the minimum ttl of the fence key. For a round of a
-- waiter also the argument about the queue (see queue.lua). All ttls are in milliseconds.

--- fence.lua
-- Fast path: one resource, no waiters. If the fence equals the proposal, the text of the proposal is
-- reused. SET NX returns nil for an existing key of any type, so a foreign value counts as held.
if #KEYS == 3 and not is_queued and redis.call('SET', KEYS[1], token, 'NX', 'PX', ttl) then
  local text = fence == proposal and ARGV[3] or string.format('%.0f', fence)
  redis.call('SET', KEYS[2], text, 'PX', memory)
  return reply
end

local queue_argument = ARGV[5]
--- queue.lua

local longest, is_own, is_notified, is_held = 0, false, {}, {}
local holder, longest_held = '', 0
for i = 1, #KEYS, 3 do
  local wait = 0
  local first = redis.pcall('ZRANGE', KEYS[i + 2], 0, 0, 'WITHSCORES')
  local score = tonumber(first[2] or 0)
  if score < 0 and first[1] == waiter then
    is_notified[i] = true
  else
    wait = math.ceil(left(score) / 1000)
  end
  local pttl = redis.call('PTTL', KEYS[i])
  if pttl ~= -2 then
    is_held[i] = true
    local value = redis.pcall('GET', KEYS[i])
    is_own = is_own or value == token
    -- PTTL is 0 in the last millisecond of a key. The key is still held, so wait at least 1 ms.
    local free_in = pttl < 0 and math.huge or math.max(pttl, 1)
    wait = math.max(wait, free_in)
    if free_in > longest_held then
      longest_held = free_in
      holder = type(value) == 'string' and string.sub(value, 1, MAX_TOKEN + 1) or ''
    end
  end
  longest = math.max(longest, wait)
end
if is_own then return {2, 0} end

-- All resources are free for this token: lock all of them.
if longest == 0 then
  for i = 1, #KEYS, 3 do
    redis.call('SET', KEYS[i], token, 'PX', ttl)
    redis.call('SET', KEYS[i + 1], string.format('%.0f', fence), 'PX', memory)
    if waiter then redis.pcall('ZREM', KEYS[i + 2], waiter) end
  end
  return reply
end

local rank = -1
if ticket then
  for i = 1, #KEYS, 3 do
    local lock, queue = KEYS[i], KEYS[i + 2]
    if not is_notified[i] or is_held[i] then
      put(queue, ticket, waiter)
    elseif reserve > 0 then
      put(queue, -(now + reserve), waiter)
    else
      -- This waiter cannot use its turn while another resource is held, so the next waiter gets a
      -- turn. This waiter rejoins the queue when it tries again.
      redis.pcall('ZREM', queue, waiter)
      notify_next(lock, queue, false)
    end
    local before = redis.pcall('ZRANK', queue, waiter)
    if type(before) == 'number' then rank = math.max(rank, before) end
  end
end
return {0, longest < math.huge and longest or -1, now, rank, holder}
