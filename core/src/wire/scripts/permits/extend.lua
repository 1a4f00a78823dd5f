-- EXTEND of permits. Returns the same as ../extend.lua.
--
-- KEYS: for each permit of each lease the lock key, the fence key, and the index (see permits.lua).
-- ARGV: for each lease the arguments of extend.lua, and the common beginning of all lock keys of the
-- semaphore.

--- pttl.lua
--- clock.lua
--- index.lua
local done, at = {}, 1
for i = 1, #ARGV, 5 do
  local token, ttl, memory, base = ARGV[i + 1], tonumber(ARGV[i + 2]), tonumber(ARGV[i + 3]), ARGV[i + 4]
  local last, is_held = at + EACH * ARGV[i] - 1, 1
  for k = at, last, EACH do
    if redis.pcall('GET', KEYS[k]) ~= token then is_held = 0 end
  end
  for k = at, last, EACH do
    if is_held == 1 then
      local lock, counter, index = KEYS[k], KEYS[k + 1], KEYS[k + 2]
      if pttl[lock] < ttl then
        redis.call('PEXPIRE', lock, ttl)
        pttl[lock] = ttl
      end
      local left = redis.call('PTTL', counter)
      if left >= 0 and left < memory then redis.call('PEXPIRE', counter, memory) end
      if update_index(index, base, lock, pttl[lock]) then keep_index(index, memory) end
    end
  end
  done[#done + 1] = is_held
  at = last + 1
end
return done
