-- ACQUIRE of permits of a semaphore: locks all slots for a token, or none. Returns one of:
--   {1, fence, time}                                    granted
--   {2, 0}                                              the token already holds a slot
--   {0, expires_in, time, rank, holder, free, known}    refused
--
-- The first five are those of acquire.lua. `free` has slots that are free for this client, some more
-- than it wants; none if there are too few. `known` is the number of slots that the index has.
--
-- KEYS: for each permit the lock key, the fence key, the queue, and the index (see permits.lua). The
-- last two are the same for all.
-- ARGV: the token, the ttl of the lock, the proposed fence, the minimum ttl of the fence key, the
-- beginning of all lock keys, and the limit of the client. For a round of a waiter also: the length of a
-- notified waiter's turn (microseconds), the ttl of the queue, the waiter, and its ticket ('' if it does
-- not join). All ttls are in milliseconds.

--- fence.lua
local queue, index, base, limit = KEYS[3], KEYS[4], ARGV[5], tonumber(ARGV[6])
local clock = math.floor(now / 1000)

local function grant(i)
  local text = fence == proposal and ARGV[3] or string.format('%.0f', fence)
  redis.call('SET', KEYS[i + 1], text, 'PX', memory)
  local slot, till = string.sub(KEYS[i], #base + 1), string.format('%.0f', clock + ttl)
  return redis.pcall('ZADD', index, till, slot)
end

-- Fast path: one permit, no waiters.
local is_granted = #KEYS == 4 and not is_queued and redis.call('SET', KEYS[1], token, 'NX', 'PX', ttl)
if is_granted and grant(1) == 0 then
  redis.call('PEXPIRE', index, memory)
  return {1, fence, now}
end

--- queue.lua
--- permits.lua
if is_granted then
  learn(limit, memory)
  return {1, fence, now}
end

local turn, kept, waiter, ticket = tonumber(ARGV[7]), ARGV[8], ARGV[9], tonumber(ARGV[10])
local wanted, is_own, holder, longest_held, held = #KEYS / 4, false, '', 0, {}
for i = 1, #KEYS, 4 do
  local value = redis.pcall('GET', KEYS[i])
  if value then
    held[#held + 1] = string.sub(KEYS[i], #base + 1)
    is_own = is_own or value == token
    local pttl = redis.call('PTTL', KEYS[i])
    local free_in = pttl < 0 and math.huge or math.max(pttl, 1)
    if free_in > longest_held then
      longest_held = free_in
      holder = type(value) == 'string' and string.sub(value, 1, MAX_TOKEN + 1) or ''
    end
  end
end
if is_own then return {2, 0} end

learn(limit, memory)
-- HEAL may have taken a slot that is free in the index.
for _, slot in ipairs(held) do
  if redis.pcall('ZSCORE', index, slot) == '0' then set_free_from(slot) end
end
local free = count_free(limit)
local reserved = reserved_before(waiter, ticket, free)
local may_have = reserved + wanted <= free
if not held[1] and may_have then
  for i = 1, #KEYS, 4 do
    redis.call('SET', KEYS[i], token, 'PX', ttl)
    grant(i)
  end
  if waiter then redis.pcall('ZREM', queue, waiter) end
  return {1, fence, now}
end

local expires_in, offered = free_in(reserved + wanted, limit), {}
-- The proposal is the same on all nodes, and differs between clients, so that these try different slots.
if may_have then offered = some_free(math.min(wanted + SPARE, free), proposal % free, limit) end
local rank = -1
if ticket then
  put(queue, ticket, waiter, kept)
  notify_waiters(turn, kept, waiter, free)
  local before = redis.pcall('ZRANK', queue, waiter)
  if type(before) == 'number' then rank = before end
end
return {0, expires_in, now, rank, holder, offered, known()}
