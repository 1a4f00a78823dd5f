-- EXTEND: makes the keys of each lease last for at least the ttl, if the token holds all resources of the lease.
-- Returns for each lease 1 if its token holds all resources of the lease; else 0. Never shortens the ttl of a key: an
-- EXTEND that arrives late must not undo a longer EXTEND that arrived earlier, and a fence counter must not expire
-- before the node's clock has passed the counter's value.
--
-- KEYS: for each resource of each lease the lock key and the fence key.
-- ARGV: for each lease the number of its resources, its token, its ttl, and the ttl of its fence
-- keys. All ttls are in milliseconds.

local done, at = {}, 1
for i = 1, #ARGV, 4 do
  local token, ttl, memory = ARGV[i + 1], ARGV[i + 2], ARGV[i + 3]
  local last, is_held = at + 2 * ARGV[i] - 1, 1
  for k = at, last, 2 do
    if redis.pcall('GET', KEYS[k]) ~= token then is_held = 0 end
  end
  for k = at, last, 2 do
    if is_held == 1 then
      if redis.call('PTTL', KEYS[k]) < tonumber(ttl) then redis.call('PEXPIRE', KEYS[k], ttl) end
      local left = redis.call('PTTL', KEYS[k + 1])
      if left >= 0 and left < tonumber(memory) then redis.call('PEXPIRE', KEYS[k + 1], memory) end
    end
  end
  done[#done + 1] = is_held
  at = last + 1
end
return done
