-- RELEASE and UNDO: 1 if this token held all resources; else 0. What it held is deleted, and of each
-- resource that is free now the next waiter is called.
--
-- KEYS: of each resource the lock key and the queue.
-- ARGV: the token; the waiter (or ''), its ticket (or '', if it does not wait any more); for how many
-- microseconds a waiter that is called goes first, and for how many milliseconds a queue is kept.

local token, waiter, ticket, call, kept = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4]), ARGV[5]
local done = 1
for i = 1, #KEYS, 2 do
  local lock, queue = KEYS[i], KEYS[i + 1]
  local is_held = redis.pcall('GET', lock) == token
  if is_held then redis.call('DEL', lock) else done = 0 end
  if waiter ~= '' then
    if ticket then put(queue, ticket, waiter, kept) else redis.pcall('ZREM', queue, waiter) end
  end
  local first = redis.pcall('ZRANGE', queue, 0, 0)
  if first[1] and (is_held or redis.call('EXISTS', lock) == 0) then
    call_next(lock, queue, is_held, call, kept)
  end
end
return done
