-- RELEASE and UNDO of permits: deletes the lock keys that the token holds, or keeps them for a given time. Notifies the
-- waiters that can have the free slots. Returns 1 if the token held all slots; else 0.
--
-- KEYS: for each permit the lock key, the queue, and the index (see permits.lua).
-- ARGV: the token, the common beginning of all lock keys, and the argument about the queue (see ../queue.lua). Only if
-- the waiter joins the queue or the lock keys are kept, also: for how long to keep the lock keys (milliseconds; '0' to
-- delete them). Without this argument, the fast path is possible.

local token, base, queue, index = ARGV[1], ARGV[2], KEYS[2], KEYS[3]

-- Fast path: one permit, no waiters.
if #KEYS == 3 and not ARGV[4] and redis.pcall('EXISTS', queue) ~= 1 then
  if redis.pcall('GET', KEYS[1]) ~= token then return 0 end
  redis.call('DEL', KEYS[1])
  redis.pcall('ZADD', index, 'XX', '0', string.sub(KEYS[1], #base + 1))
  return 1
end

--- clock.lua
local is_queued = true
--- index.lua
local queue_argument = ARGV[3]
--- queue.lua
--- permits.lua
local keep, done, has_turn = ARGV[4] ~= '0' and tonumber(ARGV[4]), 1, end_of_turn(waiter)
for i = 1, #KEYS, 3 do
  if redis.pcall('GET', KEYS[i]) ~= token then
    done = 0
  elseif keep then
    redis.call('PEXPIRE', KEYS[i], keep)
    update_index(index, base, KEYS[i], keep)
  else
    redis.call('DEL', KEYS[i])
    update_index(index, base, KEYS[i], 0)
  end
end
if ticket then
  put(queue, ticket, waiter)
elseif waiter then
  redis.pcall('ZREM', queue, waiter)
end
free_passed()
-- The waiter does not use its turn, so the slots that were offered to it are free again.
if has_turn then take_back(has_turn) end
notify_waiters()
return done
