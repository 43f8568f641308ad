// tma.cc — tensor maps, TMA loads and stores, bulk copies.
#include <algorithm>

#include "simt/machine.h"

namespace simt {

namespace {

constexpr uint64_t map_magic = 0x74656e736f726d61u;

int32_t row_bytes_of(int32_t swizzle) { return 16 << swizzle; }  // 16: none

void check_map(const TensorMap *map, int32_t rank) {
  if (reinterpret_cast<uintptr_t>(map) % 64 != 0)
    fail("tensor map at %p is not 64-byte aligned", static_cast<const void *>(map));
  if (map->magic != map_magic) fail("tensor map was never encoded");
  if (map->rank != rank) fail("tensor map of rank %d used with %d coordinates", map->rank, rank);
}

uint32_t box_bytes(const TensorMap &map) {
  int64_t bytes = map.element;
  for (int32_t i = 0; i < map.rank; i++) bytes *= map.box[i];
  return static_cast<uint32_t>(bytes);
}

// The alignment of a swizzled box, whose pattern counts from there.
uint32_t box_alignment(const TensorMap &map) {
  return map.swizzle == 0 ? 128u : 8u * static_cast<uint32_t>(row_bytes_of(map.swizzle));
}

// Visits the rows of the box: move(address in shared memory of the row's byte 0 before swizzling,
// global bytes, bytes inside the tensor as [from, to)), row by row.
template <class Move>
void for_each_row(const TensorMap &map, const int32_t *at, uint32_t shared, Move move) {
  int64_t row_bytes = static_cast<int64_t>(map.box[0]) * map.element;
  int32_t planes = map.rank > 2 ? map.box[2] : 1, rows = map.rank > 1 ? map.box[1] : 1;
  uint32_t address = shared;
  for (int32_t z = 0; z < planes; z++) {
    for (int32_t y = 0; y < rows; y++) {
      int64_t gy = static_cast<int64_t>(at[1]) + y, gz = static_cast<int64_t>(at[2]) + z;
      bool inside = (map.rank < 2 || (gy >= 0 && gy < map.extent[1])) &&
                    (map.rank < 3 || (gz >= 0 && gz < map.extent[2]));
      int64_t first = static_cast<int64_t>(at[0]) * map.element, extent = map.extent[0] * map.element;
      int64_t from = std::clamp<int64_t>(-first, 0, row_bytes),
              to = std::clamp<int64_t>(extent - first, from, row_bytes);
      if (!inside) from = to = 0;
      int64_t offset =
          first + (map.rank > 1 ? gy * map.stride[1] : 0) + (map.rank > 2 ? gz * map.stride[2] : 0);
      move(address, offset, from, to);
      address += static_cast<uint32_t>(row_bytes);
    }
  }
}

uint32_t swizzled(const TensorMap &map, uint32_t address) {
  if (map.swizzle == 0) return address;
  uint32_t mask = (1u << map.swizzle) - 1;
  return address ^ (address >> 7 & mask) << 4;
}

void write_box(const Load &load, const Cta &cta) {
  const TensorMap &map = load.map;
  int64_t row_bytes = static_cast<int64_t>(map.box[0]) * map.element;
  for_each_row(map, load.at, load.shared, [&](uint32_t address, int64_t offset, int64_t from, int64_t to) {
    for (int64_t i = 0; i < row_bytes; i += 16) {
      uint8_t *chunk = cta.shared + (swizzled(map, address + static_cast<uint32_t>(i)) - shared_base);
      int64_t begin = std::clamp<int64_t>(from - i, 0, 16), end = std::clamp<int64_t>(to - i, begin, 16);
      memset(chunk, 0, 16);
      if (end > begin) memcpy(chunk + begin, map.p + offset + i + begin, static_cast<size_t>(end - begin));
    }
  });
}

void start(std::unique_ptr<Load> load) {
  for (Cta *cta : load->to) {
    shared_bytes(*cta, load->shared, load->bytes, 16, "TMA load");
    PhaseBarrier &barrier = phase_barrier(*cta, load->barrier);
    check_published(barrier, "TMA load");
    barrier.in_flight += load->bytes;
  }
  // The issuer's own barrier has counted the bytes before; a neighbour's counts them here.
  Cta *own = current()->cta;
  if (std::find(load->to.begin(), load->to.end(), own) != load->to.end()) {
    PhaseBarrier &barrier = phase_barrier(*own, load->barrier);
    if (machine.launch.cluster == 1 && barrier.in_flight > barrier.bytes) {
      fail("TMA load: %lld bytes are under way for the mbarrier at shared byte %u, which expects %lld",
           static_cast<long long>(barrier.in_flight), barrier.address - shared_base,
           static_cast<long long>(barrier.bytes));
    }
  }
  const Load &issued = *load;
  machine.loads.push_back(std::move(load));
  Async *async = machine.loads.back().get();
  uint32_t moment = random_below(3);
  if (moment == 0) {
    finish_async(async);
    return;
  }
  for (Cta *cta : issued.to) memset(cta->shared + (issued.shared - shared_base), 0xff, issued.bytes);
  if (moment == 1) {
    float_async(async);
  } else {
    linger_async(async);
  }
}

}  // namespace

sie_status encode_tensor_map(TensorMap *map, int32_t dtype, const void *p, int32_t rank,
                             const int64_t *extent, const int64_t *stride, const int32_t *box,
                             int32_t swizzle) {
  int32_t element = dtype == SIE_F32                         ? 4
                    : dtype == SIE_F16 || dtype == SIE_BF16  ? 2
                    : dtype == SIE_F8E4M3 || dtype == SIE_U8 ? 1
                                                             : 0;
  if (element == 0 || rank < 1 || rank > 3 || swizzle < 0 || swizzle > 3) return SIE_INVALID_ARGUMENT;
  if (p == nullptr || reinterpret_cast<uintptr_t>(p) % 16 != 0) return SIE_INVALID_ARGUMENT;
  *map = {};
  for (int32_t i = 0; i < rank; i++) {
    if (extent[i] < 1 || extent[i] > int64_t{1} << 32 || box[i] < 1 || box[i] > 256)
      return SIE_INVALID_ARGUMENT;
    map->extent[i] = extent[i];
    map->box[i] = box[i];
    map->stride[i] = i == 0 ? element : stride[i - 1] * element;
    if (i > 0 && (map->stride[i] % 16 != 0 || map->stride[i] <= 0 || map->stride[i] >= int64_t{1} << 40))
      return SIE_INVALID_ARGUMENT;
  }
  int32_t row_bytes = box[0] * element;
  if (swizzle == 0 ? row_bytes % 16 != 0 : row_bytes != row_bytes_of(swizzle)) return SIE_INVALID_ARGUMENT;
  map->magic = map_magic;
  map->p = static_cast<uint8_t *>(const_cast<void *>(p));
  map->rank = rank;
  map->element = element;
  map->swizzle = swizzle;
  return SIE_OK;
}

bool Load::step() {
  for (Cta *cta : to) {
    if (map.rank == 0) {
      memcpy(cta->shared + (shared - shared_base), from, bytes);
    } else {
      write_box(*this, *cta);
    }
    phase_barrier_written(*cta, barrier, bytes);
  }
  return true;
}

void tma_load(void *shared, const TensorMap *map, int32_t rank, const int32_t *at, uint64_t *barrier,
              uint16_t ctas) {
  require(90, "TMA load");
  check_map(map, rank);
  check_written(map->p);
  auto load = std::make_unique<Load>();
  load->map = *map;
  load->bytes = box_bytes(*map);
  std::copy(at, at + 3, load->at);
  load->shared = shared_address(shared);
  load->barrier = shared_address(barrier);
  if (load->shared % box_alignment(*map) != 0) {
    fail("TMA load to shared byte %u, which is not %u-byte aligned", load->shared - shared_base,
         box_alignment(*map));
  }
  if (ctas == 0) load->to.push_back(current()->cta);
  for (uint32_t rank_in_cluster = 0; rank_in_cluster < 16; rank_in_cluster++) {
    if ((ctas >> rank_in_cluster & 1) == 0) continue;
    if (rank_in_cluster >= machine.launch.cluster)
      fail("TMA multicast to block %u of a cluster of %u", rank_in_cluster, machine.launch.cluster);
    load->to.push_back(current()->cta->cluster->ctas[rank_in_cluster]);
  }
  start(std::move(load));
}

void bulk_load(void *shared, const void *global, uint32_t bytes, uint64_t *barrier) {
  require(90, "bulk copy");
  check_global(global, 16);
  check_written(global);
  if (bytes == 0 || bytes % 16 != 0) fail("bulk copy of %u bytes", bytes);
  auto load = std::make_unique<Load>();
  load->map.rank = 0;
  load->from = static_cast<const uint8_t *>(global);
  load->bytes = bytes;
  load->shared = shared_address(shared);
  load->barrier = shared_address(barrier);
  load->to.push_back(current()->cta);
  start(std::move(load));
}

bool Store::step() {
  int64_t row_bytes = static_cast<int64_t>(map.box[0]) * map.element;
  if (!read) {
    box.resize(box_bytes(map));
    uint8_t *out = box.data();
    for_each_row(map, at, shared, [&](uint32_t address, int64_t, int64_t, int64_t) {
      for (int64_t i = 0; i < row_bytes; i += 16) {
        memcpy(out, cta->shared + (swizzled(map, address + static_cast<uint32_t>(i)) - shared_base), 16);
        out += 16;
      }
    });
    read = true;
    return false;
  }
  const uint8_t *row = box.data();
  for_each_row(map, at, shared, [&](uint32_t, int64_t offset, int64_t from, int64_t to) {
    if (to > from) memcpy(map.p + offset + from, row + from, static_cast<size_t>(to - from));
    row += row_bytes;
  });
  return true;
}

void tma_store(const TensorMap *map, int32_t rank, const int32_t *at, const void *shared) {
  require(90, "TMA store");
  check_map(map, rank);
  Fiber *fiber = current();
  if (!fiber->proxy_fenced)
    fail("TMA store: no fence_proxy_async by its thread since the last group of stores");
  auto store = std::make_unique<Store>();
  store->map = *map;
  std::copy(at, at + 3, store->at);
  store->cta = fiber->cta;
  store->shared = shared_address(shared);
  shared_bytes(*fiber->cta, store->shared, box_bytes(*map), box_alignment(*map), "TMA store");
  store->group = fiber->store_group;
  fiber->stores.push_back(std::move(store));
  Store *issued = fiber->stores.back().get();
  switch (random_below(3)) {
    case 0:
      finish_async(issued);
      break;
    case 1:
      float_async(issued);
      break;
    default:
      break;
  }
}

void fence_proxy_async() {
  require(90, "fence.proxy.async");
  current()->proxy_fenced = true;
}

void tma_store_commit() {
  current()->store_group++;
  current()->proxy_fenced = false;
}

void tma_store_wait(int32_t pending, bool read_only) {
  Fiber *fiber = current();
  uint64_t groups = fiber->store_group;
  uint64_t done = groups > static_cast<uint64_t>(pending) ? groups - static_cast<uint64_t>(pending) : 0;
  for (const std::unique_ptr<Store> &store : fiber->stores) {
    if (store->group < done && !(read_only ? store->read : store->finished)) {
      dawdle("tma_store_wait");
      break;
    }
  }
  for (const std::unique_ptr<Store> &store : fiber->stores) {
    if (store->group >= done) continue;
    if (read_only) {
      if (!store->read) store->step();
    } else if (!store->finished) {
      finish_async(store.get());
    }
  }
  auto finished = [](const std::unique_ptr<Store> &store) { return store->finished; };
  fiber->stores.erase(std::remove_if(fiber->stores.begin(), fiber->stores.end(), finished),
                      fiber->stores.end());
}

}  // namespace simt
