-- Slots: the number that each holder of a lock with slots has, from 1 to N.
--
-- Reads:   holds, state; lock.mode, lock.count
-- Changes: in the state:
--   'slots:<BLOCK>'  one character for each number of a block: '1' if it is taken, else '0'. Those
--                    beyond its end are free. The Rust model reads all holds instead
--   'slots'          the same for each block: '1' if all its numbers are taken
--   '<token>:slot'   the number of a hold

-- How many numbers a block has, so that no string is long: copying it takes time.
local BLOCK = 500

-- How many slots the lock has; nil in another mode.
local function slots() return tonumber(string.sub(lock.mode or '', 7)) end

local function marks(field) return redis.call('HGET', STATE, field) or '' end

-- The first place that is free.
local function lowest(field) return string.find(marks(field) .. '0', '0', 1, true) end

local function set_mark(field, place, mark)
  local present = marks(field)
  local before = string.sub(present, 1, place - 1) .. string.rep('0', place - 1 - #present)
  redis.call('HSET', STATE, field, before .. mark .. string.sub(present, place + 1))
end

local function set_slot(number, mark)
  local block = math.ceil(number / BLOCK)
  local field = 'slots:' .. block
  set_mark(field, number - (block - 1) * BLOCK, mark)
  set_mark('slots', block, lowest(field) > BLOCK and '1' or '0')
end

-- The number of a hold. That of a reinstated hold, whose token is only an id, does not count: it is
-- shown, but another hold may have it by now.
local function slot_of(token) return string.len(token) > 8 and tonumber(detail(token, 'slot')) end

-- Frees all numbers.
local function clear_slots()
  if not slots() then return end
  for block = 1, #marks('slots') + 1 do redis.call('HDEL', STATE, 'slots:' .. block) end
  redis.call('HDEL', STATE, 'slots')
end

local function lowest_slot()
  local block = lowest('slots')
  return (block - 1) * BLOCK + lowest('slots:' .. block)
end

-- Gives a new hold the lowest free number. If all are taken, the marks are wrong, because an earlier
-- version of rlock dropped holds, or their key was deleted. Then the holds on record decide, unless
-- there are too many to read.
local function take_slot(token)
  local most = slots()
  if not most then return end
  if lock.count == 0 or lowest_slot() > most and lock.count <= 3 * BATCH then
    clear_slots()
    for _, present in ipairs(redis.call('ZRANGE', HOLDS, 0, -1)) do
      local number = slot_of(present)
      if number then set_slot(number, '1') end
    end
  end
  local number = lowest_slot()
  if number > most then return end
  set_slot(number, '1')
  redis.call('HSET', STATE, token .. ':slot', int(number))
end

-- Frees the number of a hold that is about to be dropped.
local function free_slot(token)
  local number = slots() and slot_of(token)
  if number then set_slot(number, '0') end
end

-- The reply to a caller that holds the lock:
--   { 'granted', fence, number of its slot if it has one }
local function granted(fence)
  return { 'granted', fence, slots() and detail(TOKEN, 'slot') or nil }
end
