-- ACQUIRE of permits of a semaphore: locks all slots for a token, or none. Returns one of:
--   time                                                granted with the proposed fence
--   {1, fence, time}                                    granted with another fence
--   {2, 0}                                              the token already holds a slot
--   {0, expires_in, time, rank, holder, free, known}    refused
--
-- The first five values are those of acquire.lua. `free` lists slots that this client may try. For a waiter, these are
-- the slots that are offered to the waiter until the end of its turn, and a few slots that no waiter needs. For a round
-- that does not join the queue, these are as many slots as the round wants, and a few more. `free` is empty if too few
-- slots are free. `known` is the number of slots in the index.
--
-- KEYS: for each permit the lock key, the fence key, the queue, and the index (see permits.lua). The queue
-- and the index are the same for all permits.
-- ARGV: the token, the ttl of the lock, the proposed fence, the minimum ttl of the fence key, the common
-- beginning of all lock keys, and the limit of the client. For a round of a waiter also the argument about the
-- queue (see ../queue.lua). All ttls are in milliseconds.

--- fence.lua
local queue, index, base, limit = KEYS[3], KEYS[4], ARGV[5], tonumber(ARGV[6])

--- index.lua

-- `is_new`: whether the index lacked a slot that this script has locked. `has_index`: whether the index could be
-- changed. If not, the key of the index may hold a value of another type. The script must not make such a key expire.
local is_new, has_index = false, true

-- Marks a slot as taken in the index, if the index has the slot. Only `learn` (in permits.lua) adds slots.
local function take(i)
  local changed = redis.pcall('ZADD', index, 'XX', 'CH', free_from(ttl), string.sub(KEYS[i], #base + 1))
  has_index = type(changed) == 'number'
  is_new = changed == 0 or is_new
end

-- Stores the fence and the index entry of a slot whose lock key was set.
local function grant(i)
  local text = fence == proposal and ARGV[3] or string.format('%.0f', fence)
  redis.call('SET', KEYS[i + 1], text, 'PX', memory)
  take(i)
end

local function granted()
  if has_index then keep_index(index, memory) end
  return reply
end

-- Fast path: one permit, no waiters.
local is_granted = #KEYS == 4 and not is_queued and redis.call('SET', KEYS[1], token, 'NX', 'PX', ttl)
if is_granted then
  grant(1)
  if not is_new then return granted() end
end

local queue_argument = ARGV[7]
--- queue.lua
--- permits.lua
local function learn_taken()
  learn(limit, memory)
  for i = 1, #KEYS, 4 do take(i) end
end
if is_granted then
  learn_taken()
  return granted()
end

local wanted, has_turn, is_free, is_own, holder, longest_held = #KEYS / 4, end_of_turn(waiter), true, false, '', 0
local held = {}
for i = 1, #KEYS, 4 do
  local value, slot = redis.pcall('GET', KEYS[i]), string.sub(KEYS[i], #base + 1)
  if value then
    is_free = false
    is_own = is_own or value == token
    local pttl = wanted == 1 and 1 or redis.call('PTTL', KEYS[i])
    local free_in = pttl < 0 and math.huge or math.max(pttl, 1)
    if free_in > longest_held then
      longest_held = free_in
      holder = type(value) == 'string' and string.sub(value, 1, MAX_TOKEN + 1) or ''
    end
    held[#held + 1] = KEYS[i]
  elseif is_queued and not has_turn and is_offered(slot) then
    is_free = false
  end
end
if is_own then return {2, 0} end

local free, reserved = nil, 0
if not is_free or (is_queued and not has_turn) then
  learn(limit, memory)
  for _, lock in ipairs(held) do correct(lock) end
  free = count_free(limit)
  reserved = has_turn and 0 or reserved_before(waiter, ticket, free or 0)
  is_free = is_free and (not free or reserved + wanted <= free)
end
if is_free then
  for i = 1, #KEYS, 4 do
    redis.call('SET', KEYS[i], token, 'PX', ttl)
    grant(i)
  end
  if is_new then learn_taken() end
  if waiter then redis.pcall('ZREM', queue, waiter) end
  -- If the waiter locked other slots than those offered to it, the offered slots are free again.
  if has_turn and take_back(has_turn) then notify_waiters() end
  return granted()
end

-- This waiter does not use its turn, so the slots that were offered to it are free again. If this waiter is first in
-- the queue, these slots may be offered to it once more.
if has_turn then
  take_back(has_turn)
  free = count_free(limit)
end
local expires_in, offered, rank = free_in(reserved + wanted, limit), {}, -1
if ticket then
  put(queue, ticket, waiter)
  if free ~= 0 or known > limit then offered = notify_waiters(waiter) end
  local before = redis.pcall('ZRANK', queue, waiter)
  if type(before) == 'number' then rank = before end
elseif free and reserved + wanted <= free then
  -- The proposal is the same on all nodes but differs between clients, so different clients try different
  -- slots.
  offered = some_free(math.min(wanted + SPARE, free), proposal % free, limit)
end
return {0, expires_in, now, rank, holder, offered, known}
