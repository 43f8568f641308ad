// cost_heads.cc — the formulas of cost_heads.h.
#include "cuda/cost_heads.h"

#include <math.h>

#include "cuda/cost_parts.h"
#include "cuda/lora.h"

namespace sie_cuda {

namespace {

// Bytes of a pass through the port of shared memory. An access of 16 bytes a lane takes two at
// least, one for each half warp (S. Gray, maxas, issue 8, of Maxwell).
constexpr double kPass = 128;
// From one multiprocessor of a cluster to another, as published of Hopper (Luo 2024,
// arXiv:2402.13499).
constexpr double kClusterTrip = 180;

double sum_of(const int32_t *lengths, int64_t seqs) {
  double sum = 0;
  for (int64_t i = 0; i < seqs; i++) sum += lengths[i];
  return sum;
}

// Clocks in which the schedulers issue so many instructions of one warp each.
double issued(const Card &card, double instructions) { return instructions * 32 / card.lanes; }
double passed(const Card &card, double passes) { return passes * kPass / card.shared_bytes; }

// Microseconds in which the whole card does so many FMAs in f32.
double fma_us(const Card &card, double fmas) {
  return fmas / (card.lanes * card.multiprocessors) / (card.ghz * 1e3);
}
double bytes_us(const Card &card, double bytes) { return bytes / card.dram_bytes_s * 1e6; }

// Work that CTAs do, `resident` of them on a multiprocessor at a time: as long as its busiest unit
// takes for all of those, or as one takes whose loads no other hides.
struct Crowd {
  double turns, resident;

  Crowd(const Card &card, int64_t ctas, int64_t most_resident) {
    const int64_t each = up(ctas, card.multiprocessors), held = each < most_resident ? each : most_resident;
    resident = static_cast<double>(held);
    turns = held > 0 ? static_cast<double>(up(ctas, held * card.multiprocessors)) : 0;
  }
  double clocks(double busiest, double alone) const { return turns * most(resident * busiest, alone); }
  // What bounds it.
  Limit limit(const Cost &c, double alone) const {
    return resident * c.busiest() >= alone ? c.limit() : Limit::latency;
  }
};

// The CTAs of `words` neighbouring words, each counted once for each sequence that it has words of.
int64_t parts_of(const int32_t *lengths, int64_t seqs, int64_t words) {
  int64_t parts = 0, begin = 0;
  for (int64_t i = 0; i < seqs; i++) {
    const int64_t end = begin + lengths[i];
    if (lengths[i] > 0) parts += up(end, words) - begin / words;
    begin = end;
  }
  return parts;
}

// What a CTA of spans or pairs waits for before its first line: the count, the sequence, its words,
// its labels, its threshold.
constexpr double kFoundTrips = 5;

}  // namespace

// ---- heads

Prediction predict_linear_f32(const Card &card, int64_t rows, int64_t n, int64_t k) {
  // A line: of a warp's 208 instructions 128 are FMAs and 32 reads of four floats; the copies of 48
  // rows.
  constexpr double instructions = 208, reads = 32, copies = 48, warps = 4, under_way = 5;
  const double tiles = static_cast<double>(up(up(rows, 16) * up(n, 32), card.multiprocessors)),
               lines = static_cast<double>(up(k, 32));
  Cost c;
  c.issue = tiles * issued(card, warps * instructions);
  c.shared = tiles * passed(card, warps * 2 * reads + copies);
  c.l2 = tiles * copies * 128 / card.l2_bytes;
  const double waits = card.load_clocks / under_way,
               trips = 3 * card.load_clocks;  // the count, x and W, the bias
  const double loop = lines * most(c.busiest(), waits);
  const double columns = static_cast<double>(n),
               bytes = 4 * (static_cast<double>(k) * (columns + static_cast<double>(rows)) +
                            static_cast<double>(rows) * columns);
  const bool late = waits > c.busiest() || trips > loop;
  return finish(card, trips + loop, late ? Limit::latency : c.limit(), bytes,
                most(bytes_us(card, bytes),
                     fma_us(card, static_cast<double>(rows) * columns * static_cast<double>(k))));
}

// ---- adapters

Prediction predict_lora(const Card &card, const LoraShape &a, int64_t rows, int64_t adapted) {
  const int64_t row_tiles = up(rows, lora_rows),
                columns = lora_block_columns(row_tiles, a.n, card.multiprocessors);
  const Crowd crowd(card, row_tiles * up(a.n, columns), 4);
  // Down: a step is 32 columns of x, from memory, beside the first eight ranks' rows of A; two
  // dependent products. Nothing is asked for ahead.
  const double eights = static_cast<double>(up(a.rank, 16) * 2),
               down_steps = static_cast<double>(up(a.k, 32) * up(a.rank, 64));
  const double down = adapted > 0
                          ? crowd.turns * down_steps *
                                (card.load_clocks + (least(eights, 8) - 1) * kL1Trip + 2 * card.chain_clocks)
                          : 0;
  // Up: for 64 columns B's rows, 16 ranks at a time, then the stores.
  const double up_steps = static_cast<double>(columns / lora_columns),
               stored = crowd.resident * lora_rows * lora_columns * 4 / card.l2_bytes;
  const double up_chain = adapted > 0 ? eights / 2 * (kL2Trip + card.chain_clocks) : 0;
  const double above = crowd.turns * up_steps * most(stored, up_chain);
  const double x_bytes = 2.0 * static_cast<double>(adapted) * a.k,
               y_bytes = 4.0 * static_cast<double>(rows) * a.n;
  const double clock_us = 1 / (card.ghz * 1e3);
  const double down_us = most(down * clock_us, bytes_us(card, x_bytes) / kRowsShare),
               up_us = most(above * clock_us, bytes_us(card, y_bytes) / kRowsShare);
  // The counts, the sequence, its adapter, the adapter's place.
  const double trips_us = 4 * card.load_clocks * clock_us;
  Prediction p;
  p.us = trips_us + down_us + up_us + card.gap_us;
  const double dram_us = (down_us > down * clock_us ? down_us : 0) + (up_us > above * clock_us ? up_us : 0);
  p.limit = 2 * dram_us > trips_us + down_us + up_us ? Limit::dram : Limit::latency;
  p.floor_us = bytes_us(card, 2.0 * static_cast<double>(rows) * a.k + y_bytes);
  return p;
}

// ---- extraction

Prediction predict_lstm(const Card &card, const LstmShape &a, const int32_t *lengths, int64_t seqs) {
  // 32 columns of h: a warp's instructions, of which 40 are reads of four floats; and what is
  // beside the products in a step. The barrier's fence waits for the step's rows of y.
  constexpr int64_t cluster = 8, together = 4;
  constexpr double instructions = 182, reads = 40, beside = 310;
  const int64_t own = up(a.units, cluster), lines = up(a.units, 32);
  const double warps = static_cast<double>(up(own * together, 32)), columns = static_cast<double>(lines * 32);
  double steps = 0, longest = 0;
  for (int64_t i = 0; i < seqs; i += together) {
    double group = 0;
    for (int64_t j = i; j < seqs && j < i + together; j++) group = most(group, lengths[j]);
    steps += group * a.directions;
    longest = most(longest, group);
  }
  const int64_t clusters = up(seqs, together) * a.directions, at_once = card.multiprocessors / cluster;
  const double turns = static_cast<double>(up(clusters, at_once > 1 ? at_once : 1));
  steps = most(longest, clusters > 0 ? turns * steps / static_cast<double>(clusters) : 0);
  Cost c;
  // A lone warp of a scheduler issues one instruction a clock.
  const double share = most(1, issued(card, warps));
  c.issue = static_cast<double>(lines) * instructions * share;
  c.shared = static_cast<double>(lines) * passed(card, warps * 2 * reads);
  const double ends = beside * share + kL2Trip + 2 * kClusterTrip;
  const double begin = 3 * card.load_clocks + 4.0 * static_cast<double>(own) * columns * 4 / card.l2_bytes;
  const double tokens = sum_of(lengths, seqs) * a.directions, units = a.units;
  const double weights = 4 * units * units;
  const double bytes = tokens * 5 * units * 2 + weights * a.directions * 4;
  Prediction p = finish(card, turns * begin + steps * (c.busiest() + ends), c.limit(), bytes,
                        most(bytes_us(card, bytes), fma_us(card, tokens * weights)));
  if (p.limit != Limit::dram && ends > c.busiest()) p.limit = Limit::latency;
  return p;
}

Prediction predict_spans(const Card &card, const SpansShape &a, const int32_t *lengths, int64_t seqs) {
  // A line of 32 columns: of a warp's instructions 384 are FMAs, and 56 reads of four floats. Five
  // octets come by loads of 16 bytes a lane, each of which is waited for before the next; 80 rows
  // are stored. A tile's end: 12 widths.
  constexpr double instructions = 700, reads = 56, octets = 5, rows = 80, warps = 4, end = 400;
  const Crowd crowd(card, parts_of(lengths, seqs, 4), 3);
  const double tiles = static_cast<double>(up(a.widest, 12) * up(a.labels, 32)),
               lines = static_cast<double>(up(a.k, 32));
  Cost c;
  c.issue = issued(card, warps * instructions);
  c.shared = passed(card, warps * (2 * reads + 4 * octets) + rows);
  c.l2 = (32 + 4 + 4 + 12) * 64 / card.l2_bytes;  // labels, starts and ends of a line
  const double alone = octets * kL2Trip + c.busiest();
  const double clocks =
      kFoundTrips * card.load_clocks + tiles * (lines * crowd.clocks(c.busiest(), alone) +
                                                crowd.turns * crowd.resident * issued(card, warps * end));
  double spans = 0;
  for (int64_t i = 0; i < seqs; i++) {
    const double length = lengths[i], widths = least(a.widest, length);
    spans += widths * length - widths * (widths - 1) / 2;
  }
  const double bytes = 2.0 * (2 * sum_of(lengths, seqs) + static_cast<double>(seqs) * a.labels) * a.k;
  return finish(card, clocks, crowd.limit(c, alone), bytes,
                most(bytes_us(card, bytes), fma_us(card, spans * a.labels * a.k)));
}

Prediction predict_pairs(const Card &card, const PairsShape &a, const int32_t *lengths, int64_t seqs) {
  // A line of 64 columns and 64 rows of W: a warp's instructions, of which 16 are ldmatrix and 24
  // reads of two floats, in 10 passes for 16 columns; the rows of W, t and l are written, and t and
  // l come by loads, which are waited for.
  constexpr double instructions = 240, warps = 8, matrices = 16 * 4, reads = 4 * 10, rows_of_w = 64,
                   rows_in = 24;
  // Behind a panel's last line: 16 columns a thread, with six loads each of which three wait for
  // those before.
  constexpr double columns = 16, column = 75, loads = 6, dependent = 3, sectors = 4;
  const Crowd crowd(card, parts_of(lengths, seqs, 8), 2);
  const double panels = static_cast<double>(up(a.labels, 16) * up(a.n, 64)),
               lines = static_cast<double>(up(a.k, 64));
  Cost line, panel;
  line.tensor = warps * 16 * 64 * 64 / (card.multiply_adds * card.warp_products);
  line.issue = issued(card, warps * instructions);
  line.shared = passed(card, warps * (matrices + reads) + rows_of_w + rows_in * 2 + rows_in);
  line.l2 = (rows_of_w + rows_in) * 128 / card.l2_bytes;
  panel.issue = issued(card, warps * columns * column);
  panel.shared = passed(card, warps * columns * loads);
  const double waits = dependent * (columns * kL1Trip + sectors * (kL2Trip - kL1Trip));
  Cost both;
  both.tensor = lines * line.tensor;
  both.issue = lines * line.issue + panel.issue;
  both.shared = lines * line.shared + panel.shared;
  both.l2 = lines * line.l2;
  const double alone = lines * (kL2Trip + line.busiest()) + most(waits, panel.busiest());
  const double clocks = kFoundTrips * card.load_clocks + panels * crowd.clocks(both.busiest(), alone);
  const double words = sum_of(lengths, seqs), labels = static_cast<double>(seqs) * a.labels, n = a.n, k = a.k;
  const double bytes = 2 * (n * k + (words + labels) * (n + k));
  const double products = words * a.labels * n * k /
                          (card.multiply_adds * card.products_share * card.multiprocessors) /
                          (card.ghz * 1e3);
  return finish(card, clocks, crowd.limit(both, alone), bytes, most(bytes_us(card, bytes), products));
}

// ---- sparse encodings

Prediction predict_smve(const Card &card, const SmveShape &a, const int32_t *lengths, int64_t seqs) {
  double longest = 0;
  for (int64_t i = 0; i < seqs; i++) longest = most(longest, lengths[i]);
  const double rows = sum_of(lengths, seqs), width = a.width, top = a.top;
  // 64 anchors, 32 columns of them and of 32 rows: a warp's instructions, of which 256 are FMAs;
  // reads in three passes a column, stores in 32, loads in 10. Four loads of rows and two of
  // anchors are waited for one after another.
  constexpr double warps = 8, instructions = 600, passes = 32 * 3 + 32 + 10;
  // 64 anchors offered to 32 rows. Of a row's projections in random order top·(1 + ln(width/top))
  // enter its list; in a full one the least is found again.
  constexpr double offered = 140, offered_passes = 40, found = 130;
  const double blocks = static_cast<double>(up(a.width, 64)), steps = static_cast<double>(up(a.columns, 32));
  const int64_t ctas = up(static_cast<int64_t>(rows), 32) * a.repetitions;
  const Crowd crowd(card, ctas, 2);
  const double inserted = 32 * (width > top ? top * log(width / top) : 0) / blocks;
  Cost block;
  block.issue = issued(card, warps * (steps * instructions + offered) + inserted * found);
  block.shared = passed(card, warps * (steps * passes + offered_passes));
  block.l2 = steps * 64 * 128 / card.l2_bytes;
  // The first CTAs read the anchors from memory, all at about the same place; the others find them
  // in L2.
  const auto alone = [&](double trip) { return steps * (4 * kL1Trip + 2 * trip) + block.busiest(); };
  const double first = most(crowd.resident * block.busiest(), alone(card.load_clocks)),
               other = most(crowd.resident * block.busiest(), alone(kL2Trip));
  const double project =
      2 * card.load_clocks + (crowd.turns > 0 ? blocks * (first + (crowd.turns - 1) * other) : 0);
  // Pooling: 8192 columns at a time, a row of the lists after another, from L1 or, the first time,
  // from L2; then the columns are counted and written.
  constexpr double row_clocks = 60, range = 1900;
  const double ranges = static_cast<double>(up(static_cast<int64_t>(a.repetitions) * a.width, 8192)),
               lists = static_cast<double>(up(a.top, 32));
  const double turns = static_cast<double>(up(up(seqs, card.multiprocessors), 2));
  const double pool = 3 * card.load_clocks +
                      turns * (longest * lists * (ranges * (kL1Trip + row_clocks) + kL2Trip - kL1Trip) +
                               ranges * issued(card, warps * range));
  const double anchors = static_cast<double>(a.repetitions) * width * a.columns,
               bytes = rows * a.columns * 2 + anchors * 4;
  const Prediction norms = predict_rows(card, rows * a.columns * 2, 2);
  const bool late = alone(card.load_clocks) > crowd.resident * block.busiest() && crowd.turns <= 1;
  Prediction p = finish(card, project + pool, late ? Limit::latency : block.limit(), bytes,
                        most(bytes_us(card, bytes), fma_us(card, rows * anchors)));
  p.us += norms.us + card.gap_us;  // three launches
  return p;
}

// ---- disentangled attention

Prediction predict_disentangled(const Card &card, const DisentangledShape &a, const int32_t *lengths,
                                int64_t seqs) {
  // Of a warp: the instructions of eight rows of a table, whose bytes come through L1 with their
  // bucket, whose products are put in four stores; those of a block of 64 keys beside them, whose
  // terms are added in 64 passes, whose keys, values and two times own rows come by ldmatrix and
  // reads of 16 bytes.
  const double dims = a.dim / 64.0;
  const double eight = 60 + 10 * dims, eight_passes = 8 * dims + 1 + 4, block = 580 + 100 * dims,
               block_passes = 64 + (36 * 4 + 2 * 16) * dims;
  constexpr double softmax = 6;
  const int64_t resident = a.dim <= 64 ? 3 : 2;
  double eights = 0, warps = 0, blocks = 0, pairs = 0, chain = 0, longest = 0;
  for (int64_t i = 0; i < seqs; i++) {
    for (int64_t row = 0; row < lengths[i]; row += 64) {
      const int64_t rows = lengths[i] - row < 64 ? lengths[i] - row : 64;
      double own = 0;  // eights of the busiest warp, one after another
      for (int64_t key = 0; key < lengths[i]; key += 64) {
        const int64_t keys = lengths[i] - key < 64 ? lengths[i] - key : 64;
        const int64_t of_keys = up(15 + rows, 8), of_queries = up(15 + keys, 8);
        eights += static_cast<double>(up(keys, 16) * of_keys + up(rows, 16) * of_queries);
        warps += static_cast<double>(up(rows, 16));
        own += static_cast<double>(of_keys + of_queries);
        blocks++;
      }
      chain += own;
      longest = most(longest, own);
    }
    pairs += static_cast<double>(lengths[i]) * lengths[i];
  }
  const double share = a.heads / static_cast<double>(card.multiprocessors), eight_trip = kL1Trip + kL2Trip;
  const double scores = warps * 16 * 64;
  Cost c;
  c.tensor = share * (eights * 16 * 8 + 2 * scores) * a.dim / (card.multiply_adds * card.warp_products);
  c.issue = share * issued(card, eights * eight + warps * block);
  c.shared = share * passed(card, eights * eight_passes + warps * block_passes + blocks * 128 * dims);
  c.exponentials = share * scores / card.exponentials;
  // A warp's softmax follows its products; the other warps hide about half of it.
  const double exposed = 0.5 * (c.exponentials + share * scores * softmax / card.lanes);
  const double waits = most(longest, share * chain / static_cast<double>(resident)) * eight_trip;
  const double work = c.busiest() + exposed;
  const double tokens = sum_of(lengths, seqs), bytes = 4 * tokens * a.heads * a.dim * 2;
  const double products = 4 * pairs * a.heads * a.dim /
                          (card.multiply_adds * card.products_share * card.multiprocessors) /
                          (card.ghz * 1e3);
  // The list, an item, its rows, the first row of a table.
  return finish(card, 4 * card.load_clocks + most(work, waits), waits > work ? Limit::latency : c.limit(),
                bytes / kRowsShare, most(bytes_us(card, bytes), products));
}

}  // namespace sie_cuda
