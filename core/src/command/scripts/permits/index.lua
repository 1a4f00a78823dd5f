-- The index of a semaphore: see permits.lua.

-- The score of a slot whose lock lasts so long from now, in milliseconds.
local function free_from(ttl) return string.format('%.0f', (math.floor(now / 1000) + ttl) * 1000) end

-- Sets the score of a slot that is free after so many milliseconds. `base` is the beginning of all lock keys. Returns whether
-- there is an index: a value of another type must not be made to expire.
local function update_index(index, base, lock, ttl)
  local till = ttl > 0 and free_from(ttl) or '0'
  return type(redis.pcall('ZADD', index, 'XX', till, string.sub(lock, #base + 1))) == 'number'
end

-- Keeps the index for about so long. Never shortens its life: others may hold their slots for longer.
local function keep_index(index, memory)
  local left = redis.pcall('PTTL', index)
  if type(left) == 'number' and left < memory - INDEX_SLACK then redis.pcall('PEXPIRE', index, memory) end
end
