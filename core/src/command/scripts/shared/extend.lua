-- EXTEND with at least one resource in shared mode. Returns the same as extend.lua. Never makes a
-- reader of a token whose share has expired.
--
-- KEYS: for each resource of each lease the lock key, the fence key, and the readers (see readers.lua).
-- ARGV: as in extend.lua.

local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
--- readers.lua
local done, at = {}, 1
for i = 1, #ARGV, 4 do
  local token, ttl, memory = ARGV[i + 1], tonumber(ARGV[i + 2]), ARGV[i + 3]
  local last, is_held = at + 3 * ARGV[i] - 1, 1
  for k = at, last, 3 do
    if not holds(KEYS[k], KEYS[k + 2], token) then is_held = 0 end
  end
  for k = at, last, 3 do
    local lock, readers = KEYS[k], KEYS[k + 2]
    if is_held == 1 then
      if redis.pcall('GET', lock) ~= token then
        join_readers(lock, readers, token, ttl)
      elseif readers ~= lock then
        -- The DOWNGRADE has not arrived yet.
        begin_reading(lock, readers, token, math.max(redis.call('PTTL', lock), ttl))
      elseif redis.call('PTTL', lock) < ttl then
        redis.call('PEXPIRE', lock, ttl)
      end
      local left = redis.call('PTTL', KEYS[k + 1])
      if left >= 0 and left < tonumber(memory) then redis.call('PEXPIRE', KEYS[k + 1], memory) end
    end
  end
  done[#done + 1] = is_held
  at = last + 1
end
return done
