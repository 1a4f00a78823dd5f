-- The index of a semaphore: a sorted set of all of its slots. The score of a slot is the time at which the slot becomes
-- free, by this node's clock, in microseconds; 0 if the slot is free. The index only shows which slots are worth a try:
-- the lock key of a slot decides whether the slot is held. The index may be wrong: it may have been lost, or HEAL may
-- have locked a slot. (HEAL does not update the index, because the index is not in its KEYS.) The next ACQUIRE or
-- EXTEND of the slot corrects the index. A slot that is offered to a waiter is not free until the waiter's turn ends.
-- No two turns end at the same time.
--
-- A lock key consists of `base` and the number of the slot. All keys of a semaphore have the same hash tag.

local function set_free(slot) redis.pcall('ZADD', index, 'XX', '0', slot) end

-- Sets the time of a held slot in the index to the expiry of the slot's lock key. Otherwise, a held slot that the index
-- shows as free would be offered to waiters again and again.
local function correct(lock)
  local pttl = redis.pcall('PTTL', lock)
  if type(pttl) ~= 'number' then return end
  local till = pttl < 0 and '+inf' or free_from(math.max(pttl, 1))
  redis.pcall('ZADD', index, 'XX', till, string.sub(lock, #base + 1))
end

-- Marks the slots whose time has passed as free.
local function free_passed()
  local passed = redis.pcall('ZRANGEBYSCORE', index, '(0', string.format('%.0f', now))
  for _, slot in ipairs(passed) do set_free(slot) end
end

-- The number of slots in the index, as `learn` last counted them.
local known = 0

-- Adds missing slots below a limit to the index, as free slots. Removes the slots that are beyond both the
-- limit and the highest held slot.
local function learn(limit, memory)
  free_passed()
  local count = redis.pcall('ZCARD', index)
  -- If the reply is not a number, there is no index: the key has a value of another type, or a permission is missing.
  if type(count) ~= 'number' then return end
  -- Without a ttl, an index would stay for ever. So no index is created unless PEXPIRE is permitted.
  if count == 0 and redis.pcall('PEXPIRE', index, memory) ~= 0 then return end
  known = count
  if known < limit then
    for slot = 0, limit - 1 do redis.pcall('ZADD', index, 'NX', '0', slot) end
    if count == 0 then redis.pcall('PEXPIRE', index, memory) else keep_index(index, memory) end
    known = limit
  elseif known > limit then
    -- Slots are numbered without gaps, so the index must keep all slots up to the highest held one.
    local highest = limit - 1
    for _, slot in ipairs(redis.pcall('ZRANGEBYSCORE', index, string.format('(%.0f', now), '+inf')) do
      highest = math.max(highest, tonumber(slot) or 0)
    end
    for slot = highest + 1, known - 1 do redis.pcall('ZREM', index, slot) end
    known = highest + 1
  end
end

-- Returns all free slots below a limit, in the order of the index.
local function free_slots(limit)
  local all = redis.pcall('ZRANGEBYSCORE', index, '0', '0')
  if known <= limit then return all end
  local free = {}
  for _, slot in ipairs(all) do
    if (tonumber(slot) or limit) < limit then free[#free + 1] = slot end
  end
  return free
end

-- Returns the number of free slots below a limit; nil if there is no index.
local function count_free(limit)
  if known == 0 then return nil end
  if known > limit then return #free_slots(limit) end
  local count = redis.pcall('ZCOUNT', index, '0', '0')
  return type(count) == 'number' and count or nil
end

-- Returns `count` of the free slots below a limit: the slots from position `from` on, and then those from
-- the first position on.
local function some_free(count, from, limit)
  local found = {}
  local function add(slots)
    for _, slot in ipairs(slots) do
      if #found < count then found[#found + 1] = tonumber(slot) end
    end
  end
  if known > limit then
    local all = free_slots(limit)
    for at = 0, count - 1 do add({all[(from + at) % #all + 1]}) end
    return found
  end
  add(redis.pcall('ZRANGEBYSCORE', index, '0', '0', 'LIMIT', from, count))
  if #found < count then add(redis.pcall('ZRANGEBYSCORE', index, '0', '0', 'LIMIT', 0, count)) end
  return found
end

-- Returns the time in milliseconds until `count` slots below a limit are free if no lease is extended; -1 if the slots
-- never become free, or if the time is unknown.
local function free_in(count, limit)
  local from = known <= limit and math.min(count, limit) - 1
  local all = redis.pcall('ZRANGE', index, from or 0, from or -1, 'WITHSCORES')
  local seen, till = 0, 0
  for i = 1, #all, 2 do
    if (tonumber(all[i]) or limit) < limit and seen < count then seen, till = seen + 1, tonumber(all[i + 1]) end
  end
  return (seen == 0 or till == math.huge) and -1 or math.max(math.ceil((till - now) / 1000), 0)
end

-- Reads from a waiter's name how many permits the waiter wants, and its limit. A waiter whose name lacks
-- these numbers wants one permit, of any slot.
local function wanted_permits(waiter)
  local wanted, limit = string.match(waiter, '#%d+%*(%d+)%*(%d+)$')
  return tonumber(wanted) or 1, tonumber(limit) or math.huge
end

-- Sends a waiter the slots that it can have. Without `slots`, only finds out whether the waiter listens.
-- Returns the number of listeners; nil if PUBLISH is not permitted.
local function send(waiter, slots)
  local channel, number = string.match(waiter, '^(.*)#(%d+)[*%d]*$')
  if not channel then return 0 end
  local text = slots and number .. ' ' .. base .. table.concat(slots, ',') or ''
  local listeners = redis.pcall('PUBLISH', channel, text)
  return type(listeners) == 'number' and listeners or nil
end

-- Returns whether a slot is offered to a waiter. The slot must not be held. If no waiter's turn ends at the slot's time
-- in the index, marks the slot as free: the lock of the slot has ended early, or the clock was set back.
local function is_offered(slot)
  local till = redis.pcall('ZSCORE', index, slot)
  if type(till) ~= 'string' or tonumber(till) <= now then return false end
  if left(-tonumber(till)) > 0 and redis.pcall('ZCOUNT', queue, '-' .. till, '-' .. till) ~= 0 then
    return true
  end
  set_free(slot)
  return false
end

-- Returns the time at which a waiter's turn ends, in microseconds; nil if the waiter has no turn now.
local function end_of_turn(waiter)
  local score = is_queued and waiter and redis.pcall('ZSCORE', queue, waiter)
  return type(score) == 'string' and left(tonumber(score)) > 0 and -tonumber(score) or nil
end

-- Marks as free the slots that were offered to the waiter whose turn ends at `turn_end`. Returns whether there were
-- such slots. (If the lock of a held slot expires in the same microsecond, this slot is also marked as free, until a
-- client tries the slot.)
local function take_back(turn_end)
  local till = string.format('%.0f', turn_end)
  local offered = redis.pcall('ZRANGEBYSCORE', index, till, till)
  for _, slot in ipairs(offered) do set_free(slot) end
  return offered[1] ~= nil
end

-- Returns up to `count` waiters that were not notified, in the order of the queue. If a ticket is given, returns only
-- waiters ahead of this ticket. Removes the notified waiters that did not use their turn in time.
local function waiting(count, ticket)
  redis.pcall('ZREMRANGEBYSCORE', queue, string.format('-%.0f', now), '(0')
  local before = ticket and string.format('(%.0f', ticket) or '+inf'
  return redis.pcall('ZRANGEBYSCORE', queue, '0', before, 'LIMIT', '0', count)
end

-- Returns how many permits are reserved for the listening waiters ahead of this one. Stops counting at
-- `free`. Without reservations, a waiter for several permits could wait for ever, because waiters for one
-- permit would overtake it.
local function reserved_before(waiter, ticket, free)
  if not is_queued or free == 0 then return 0 end
  local reserved, gone = 0, 0
  for _, name in ipairs(waiting(free + MOST_GONE, ticket)) do
    if reserved >= free or gone == MOST_GONE or name == waiter then break end
    local listeners = send(name)
    if not listeners then break end
    if listeners > 0 then
      reserved = reserved + wanted_permits(name)
    else
      redis.pcall('ZREM', queue, name)
      gone = gone + 1
    end
  end
  return reserved
end

-- Offers free slots to waiters in the order of the queue. `own`: the waiter whose request runs this script. This waiter
-- gets its offer in the reply, not in a message. Returns the offer to `own`, and some slots that no waiter needs. Stops
-- at the first waiter for which too few slots are free, so that no other waiter overtakes that waiter. If that waiter
-- is silent (see `is_silent`), removes it and goes on.
local function notify_waiters(own)
  local free, used, gone, notified, offer = redis.pcall('ZRANGEBYSCORE', index, '0', '0'), 0, 0, 0, {}
  if not free[1] then return offer end
  for _, name in ipairs(waiting(#free + MOST_GONE)) do
    if used >= #free or gone == MOST_GONE then return offer end
    local slots, at = {}, used
    local wanted, limit = wanted_permits(name)
    while #slots < wanted and at < #free do
      at = at + 1
      local slot = tonumber(free[at])
      if slot and slot < limit then slots[#slots + 1] = slot end
    end
    local is_enough = #slots == wanted
    local listeners = name == own and 1 or send(name, is_enough and slots)
    if not listeners then return offer end
    if listeners == 0 then
      redis.pcall('ZREM', queue, name)
      gone = gone + 1
    elseif is_enough then
      local turn_end = now + math.max(turn - notified, 0)
      local till = string.format('%.0f', turn_end)
      used, notified = at, notified + 1
      redis.pcall('ZADD', queue, '-' .. till, name)
      for _, slot in ipairs(slots) do redis.pcall('ZADD', index, till, slot) end
      if name == own then offer = slots end
    elseif is_silent(queue, name) then
      redis.pcall('ZREM', queue, name)
      gone = gone + 1
    else
      return offer
    end
  end
  if offer[1] then
    for at = used + 1, math.min(#free, used + SPARE) do offer[#offer + 1] = tonumber(free[at]) end
  end
  return offer
end
