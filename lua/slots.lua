-- Slots: the number that each holder of a lock with slots has, from 1 to N.
--
-- Reads:   holds, state; lock.mode, lock.count
-- Changes: in the state:
--   'slots:<BLOCK>'  one character for each number of a block: '1' if it is taken, else '0'. Those
--                    beyond its end are free. The Rust model reads all holds instead
--   'slots'          the same for each block: '1' if all its numbers are taken
--   the slot of a hold, in its details

-- How many numbers a block has, so that no string is long: copying it takes time.
local BLOCK = 500

-- Does one of these for a lock with slots, and nothing for any other:
--   'take'   gives a new hold with these details the lowest free number
--   'free'   frees the number of a hold that is about to be dropped
--   'clear'  frees all numbers
-- It is one function because each call of a script creates all its functions, but those inside of
-- this one only if there are slots.
local function slots(act, token, details)
  local most = tonumber(string.sub(lock.mode or '', 7))
  if not most then return end

  local function marks(field) return redis.call('HGET', STATE, field) or '' end
  -- The first place that is free.
  local function lowest(field) return string.find(marks(field) .. '0', '0', 1, true) end
  local function set_mark(field, place, mark)
    local present = marks(field)
    local before = string.sub(present, 1, place - 1) .. string.rep('0', place - 1 - #present)
    redis.call('HSET', STATE, field, before .. mark .. string.sub(present, place + 1))
  end
  local function set(number, mark)
    local block = math.ceil(number / BLOCK)
    set_mark('slots:' .. block, number - (block - 1) * BLOCK, mark)
    set_mark('slots', block, lowest('slots:' .. block) > BLOCK and '1' or '0')
  end
  local function clear()
    for block = 1, #marks('slots') + 1 do redis.call('HDEL', STATE, 'slots:' .. block) end
    redis.call('HDEL', STATE, 'slots')
  end

  if act == 'free' then
    -- The number of a reinstated hold, whose token is only an id, does not count: it is shown, but
    -- another hold may have it by now.
    local number = string.len(token) > 8 and tonumber(details_of(token).slot)
    return number and set(number, '0')
  end
  -- Marks that are left on a lock without holds are those of a key that was deleted.
  if act == 'clear' or lock.count == 0 then clear() end
  if act == 'clear' then return end
  local block = lowest('slots')
  local number = (block - 1) * BLOCK + lowest('slots:' .. block)
  if number > most then return end
  set(number, '1')
  details.slot = int(number)
end

-- The reply to a caller that holds the lock:
--   { 'granted', fence, number of its slot if it has one }
local function granted(fence)
  return { 'granted', fence, own.slot ~= '' and own.slot or nil }
end
