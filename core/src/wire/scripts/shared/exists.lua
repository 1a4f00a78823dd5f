-- EXISTS with at least one resource in shared mode. Returns 1 if any resource has a lock that conflicts with a new lock
-- in the given mode; else 0. Writes nothing.
--
-- KEYS: for each resource the lock key and the readers (see readers.lua).

for i = 1, #KEYS, 2 do
  local value = redis.pcall('GET', KEYS[i])
  if value and (value ~= MARKER or KEYS[i + 1] == KEYS[i]) then return 1 end
end
return 0
