// Dense layers of learning, and their gradients: G groups of N rows, each group with its own weights.
//
//     out = f(in · W + b)                     f: an activation, or nothing
//     at  = ∂out · f'(out)                    the gradient at the product's output
//     ∂in = at · Wᵀ,   ∂W = inᵀ · at,   ∂b = Σ at

#pragma once

#include "dense.hpp"

namespace {

struct LayerSizes {  // as in dense.py
  int32_t groups, rows, inputs, outputs, activation;
};

// Where the entry (group, row, column) of an array is, in numbers from its beginning.
struct Strides {
  int64_t group, row, column;
};

constexpr int ROWS_OF_BLOCK = 96;  // rows whose inputs and outputs stay in cache
constexpr int TERMS = 128;         // rows that are added to a gradient of weights in one pass

Layer packed(const LayerSizes& z, const float* weight, const Strides& w, int group, bool transposed,
             const float* bias) {
  const float* from = weight + group * w.group;
  if (transposed) return Layer(from, int(w.column), int(w.row), bias, z.outputs, z.inputs);
  return Layer(from, int(w.row), int(w.column), bias, z.inputs, z.outputs);
}

// out [G, N, outputs] = f(in · weight + bias); bias is [G, outputs].
void layer_forward(const LayerSizes& z, const float* in, const Strides& i, const float* weight,
                   const Strides& w, const float* bias, float* out, int threads) {
  std::vector<Layer> layers;
  for (int g = 0; g < z.groups; ++g)
    layers.push_back(packed(z, weight, w, g, false, bias + std::size_t(g) * z.outputs));
  const auto work = [&](int g, int first, int count, std::vector<float>&) {
    const float* from = in + g * i.group + first * i.row;
    float* to = out + (std::size_t(g) * z.rows + first) * z.outputs;
    const int next = std::min(count, z.rows - first - count);
    Ahead ahead;
    if (i.row <= 2 * z.inputs) ahead.add(from + count * i.row, next * i.row);
    ahead.add(to + std::size_t(count) * z.outputs, std::size_t(next) * z.outputs);
    ahead.divide(tiles(count, z.outputs));
    if (z.activation < 0) {
      dense<Then::nothing>(layers[g], from, int(i.row), count, to, z.outputs, {}, &ahead);
    } else {
      activated(z.activation, layers[g], from, int(i.row), count, to, z.outputs, &ahead);
    }
  };
  by_blocks(z.groups, z.rows, ROWS_OF_BLOCK, threads, work);
}

// Adds `terms` rows to a tile of the gradient of weights: INPUTS × VECTORS · LANES of its entries.
// `panel` has the columns of these rows side by side.
template <int VECTORS, int INPUTS>
inline void add_products(const float* in, std::ptrdiff_t in_row, int inputs, const float* panel,
                         int terms, bool first, float* to, int to_row, int columns) {
  const float* from[INPUTS];
  for (int r = 0; r < INPUTS; ++r) from[r] = in + std::min(r, inputs - 1);
  vec sum[INPUTS][VECTORS];
  for (int r = 0; r < INPUTS; ++r)
    for (int v = 0; v < VECTORS; ++v)
      sum[r][v] = first || r >= inputs || columns <= v * LANES
                      ? vec{}
                      : load(to + std::ptrdiff_t(r) * to_row + v * LANES, columns - v * LANES);
  for (int k = 0; k < terms; ++k) {
    vec g[VECTORS];
    for (int v = 0; v < VECTORS; ++v) g[v] = load(panel + (k * VECTORS + v) * LANES);
    for (int r = 0; r < INPUTS; ++r) {
      const vec value = all(from[r][k * in_row]);
      for (int v = 0; v < VECTORS; ++v) sum[r][v] += value * g[v];
    }
  }
  for (int r = 0; r < inputs; ++r)
    for (int v = 0; v < VECTORS && v * LANES < columns; ++v)
      store(to + std::ptrdiff_t(r) * to_row + v * LANES, sum[r][v], columns - v * LANES);
}

// to [inputs, outputs] = inᵀ · at, for `rows` rows; every sum is over the rows in order.
void products(const float* in, std::ptrdiff_t in_row, int inputs, const float* at,
              std::ptrdiff_t at_row, int outputs, int rows, float* to, int to_row) {
  constexpr int INPUTS = 6;
  float panel[TERMS * WIDTH];
  for (int start = 0; start < rows; start += TERMS) {
    const int terms = std::min(TERMS, rows - start);
    const float* block = in + start * in_row;
    const int next = std::min(TERMS, rows - start - terms);
    Ahead ahead;
    if (in_row <= 4 * inputs) ahead.add(block + terms * in_row, next * in_row);
    ahead.add(at + (start + terms) * at_row, next * at_row);
    ahead.divide(tiles(inputs, outputs));
    for (int column = 0; column < outputs; column += WIDTH) {
      const int columns = std::min(WIDTH, outputs - column);
      const int width = columns <= LANES ? LANES : WIDTH;
      for (int k = 0; k < terms; ++k) {
        const float* row = at + (start + k) * at_row + column;
        std::copy_n(row, columns, panel + k * width);
        std::fill_n(panel + k * width + columns, width - columns, 0.f);
      }
      for (int i = 0; i < inputs; i += INPUTS) {
        const int count = std::min(INPUTS, inputs - i);
        ahead.ask();
        float* place = to + std::ptrdiff_t(i) * to_row + column;
        if (width == LANES) {
          add_products<1, INPUTS>(block + i, in_row, count, panel, terms, start == 0, place, to_row,
                                  columns);
        } else {
          add_products<2, INPUTS>(block + i, in_row, count, panel, terms, start == 0, place, to_row,
                                  columns);
        }
      }
    }
  }
}

// Writes the gradients of weights [G, inputs, outputs] and biases [G, outputs], given the inputs and
// the gradient `at` [G, N, outputs]. `to_bias` may be null.
void weight_gradient(const LayerSizes& z, const float* in, const Strides& i, const float* at,
                     const Strides& a, float* to, float* to_bias, int threads) {
  if (z.groups == 0 || z.inputs == 0) return;
  // Blocks of inputs, in whole tiles: the sums over rows are never divided.
  const int size = (block_rows(z.inputs, z.inputs, z.groups, threads) + 5) / 6 * 6;
  const int blocks = (z.inputs + size - 1) / size;
  in_parallel(z.groups * blocks, threads, [&](int job, std::vector<float>&) {
    const int g = job / blocks, first = job % blocks * size;
    const int count = std::min(size, z.inputs - first);
    float* place = to + (std::size_t(g) * z.inputs + first) * z.outputs;
    if (z.rows == 0) std::fill_n(place, std::size_t(count) * z.outputs, 0.f);
    products(in + g * i.group + first, i.row, count, at + g * a.group, a.row, z.outputs, z.rows,
             place, z.outputs);
    if (first != 0 || to_bias == nullptr) return;
    float* sums = to_bias + std::size_t(g) * z.outputs;
    std::fill_n(sums, z.outputs, 0.f);
    for (int row = 0; row < z.rows; ++row) {
      const float* from = at + g * a.group + row * a.row;
      each([](vec sum, vec term) { return sum + term; }, z.outputs, sums, sums, from);
    }
  });
}

// Writes at [G, N, outputs] from the gradient of the outputs and, unless it is null, ∂in
// [G, N, inputs]. Without an activation, `at` is the gradient itself and is not written.
void input_gradient(const LayerSizes& z, const float* weight, const Strides& w, const float* out,
                    const float* gradient, float* at, float* to, int threads) {
  const std::vector<float> zeros(z.inputs, 0.f);
  std::vector<Layer> layers;
  if (to != nullptr)
    for (int g = 0; g < z.groups; ++g)
      layers.push_back(packed(z, weight, w, g, true, zeros.data()));
  const auto work = [&](int g, int first, int count, std::vector<float>&) {
    const std::size_t row = std::size_t(g) * z.rows + first;
    const float* from = gradient + row * z.outputs;
    if (z.activation >= 0) {
      float* scaled = at + row * z.outputs;
      times_slope(z.activation, count * z.outputs, scaled, from, out + row * z.outputs);
      from = scaled;
    }
    if (to == nullptr) return;
    const std::size_t after = row + count, next = std::min(count, z.rows - first - count);
    Ahead ahead;
    ahead.add(gradient + after * z.outputs, next * z.outputs);
    if (z.activation >= 0) {
      ahead.add(out + after * z.outputs, next * z.outputs);
      ahead.add(at + after * z.outputs, next * z.outputs);
    }
    ahead.add(to + after * z.inputs, next * z.inputs);
    ahead.divide(tiles(count, z.inputs));
    dense<Then::nothing>(layers[g], from, z.outputs, count, to + row * z.inputs, z.inputs, {},
                         &ahead);
  };
  by_blocks(z.groups, z.rows, ROWS_OF_BLOCK, threads, work);
}

}  // namespace
