-- Slots: the number that each holder of a lock with slots has, from 1 to N.
--
-- Reads:   holds, state; lock.mode, lock.count
-- Changes: in the state 'slots'
--
-- The field has one bit for each number, 1 if it is taken, from the lowest bit of the first byte.
-- Numbers beyond its end are free. It spares a call to read all holds, as the Rust model does.

local function set_slot(bits, number, is_taken)
  local at, mask = math.ceil(number / 8), 2 ^ ((number - 1) % 8)
  local byte = bit.bor(string.byte(bits, at) or 0, mask) - (is_taken and 0 or mask)
  local before, after = string.sub(bits, 1, at - 1), string.sub(bits, at + 1)
  redis.call('HSET', STATE, 'slots', before .. string.char(byte) .. after)
end

-- The bits of the numbers that are taken. Those that are left on a lock without holds are of a key
-- that was deleted.
local function taken_slots() return lock.count > 0 and redis.call('HGET', STATE, 'slots') or '' end

local function is_taken(bits, number)
  return bit.band(string.byte(bits, math.ceil(number / 8)) or 0, 2 ^ ((number - 1) % 8)) ~= 0
end

-- Takes the wanted number, or else the lowest free one, and returns it; '' in another mode.
local function take_slot(wanted)
  if string.sub(lock.mode, 1, 6) ~= 'slots:' then return '' end
  local bits, number = taken_slots(), wanted
  if not number then
    number = 8 * string.find(bits .. '\0', '[^\255]') - 7
    while is_taken(bits, number) do number = number + 1 end
  end
  set_slot(bits, number, true)
  return int(number)
end

-- Frees the number of a hold that is about to be dropped.
local function free_slot(token)
  local number = tonumber(details_of(token).slot)
  if number then set_slot(redis.call('HGET', STATE, 'slots') or '', number, false) end
end
