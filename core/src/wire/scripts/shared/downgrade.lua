-- DOWNGRADE: makes the token a reader of each resource that it holds exclusively, for the remaining ttl of the lock
-- key. Removes its waiter from the queues, and notifies the readers at the head of each queue. Returns 1 if the token
-- is now a reader of all resources; else 0.
--
-- KEYS: for each resource the lock key, the queue, and the readers (see readers.lua).
-- ARGV: the token, and the argument about the queue (see ../queue.lua).

--- pttl.lua
--- clock.lua
--- readers.lua
--- tries.lua
local queue_argument = ARGV[2]
--- queue.lua

for i = 1, #KEYS, 3 do
  local lock, readers = KEYS[i], KEYS[i + 2]
  local error = redis.pcall('GET', lock) == ARGV[1] and cannot_change(lock, readers)
  if error then return error end
end

local done = 1
for i = 1, #KEYS, 3 do
  local lock, queue, readers = KEYS[i], KEYS[i + 1], KEYS[i + 2]
  if redis.pcall('GET', lock) == ARGV[1] then
    begin_reading(lock, readers, ARGV[1], lasting(lock, 1))
  end
  if waiter then leave(queue) end
  -- Notifies the readers even if an earlier EXTEND has already made the token a reader, because EXTEND notifies nobody.
  if share(lock, readers, ARGV[1]) then
    invite_readers(lock, queue)
  else
    done = 0
  end
end
return done
