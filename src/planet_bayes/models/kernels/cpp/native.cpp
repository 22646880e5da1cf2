// The interface of the native kernels, in plain C. All arrays are contiguous float32.

#include "filter.hpp"
#include "imagination.hpp"
#include "layer.hpp"

extern "C" {

// Returns the model's packed weights, or null without memory. `layers` are the weights [P, in, out]
// and biases [P, out] of input, gates, candidate, prior_hidden and prior_out, in turn; `head` the
// weights [out, in] and biases [out] of the reward head's head_layers + 1 layers.
void* planet_bayes_pack(const Sizes* sizes, const float* const* layers, const float* const* head) {
  try {
    return new Model(packed(*sizes, layers, head));
  } catch (...) {
    return nullptr;
  }
}

void planet_bayes_free(void* model) { delete static_cast<Model*>(model); }

// Writes rewards [B, N, P, H] for actions [B, N, H, A] from deter [P, B, D] and stoch [P, B, S].
// `noise` is [H, P, B, noise_columns, S], where noise_columns is N or 1, or null for the prior's
// mean. The states [h, s] are written to `features` [H, P, B, N, D + S], unless it is null. Returns
// 0, or 1 without memory. An input or weight that is not finite gives NaN.
int planet_bayes_roll_out(const void* model, int batch, int candidates, int horizon,
                          const float* deter, const float* stoch, const float* actions,
                          const float* noise, int noise_columns, int threads, float* rewards,
                          float* features) {
  try {
    imagine(*static_cast<const Model*>(model),
            Work{batch, candidates, horizon, noise_columns, threads, deter, stoch, actions, noise,
                 rewards, features});
    return 0;
  } catch (...) {
    return 1;
  }
}

// Filters sequences from the zero belief: writes the arrays that are not const. Returns 0, or 1
// without memory.
int planet_bayes_filter(const FilterSizes* sizes, const FilterWeights* weights,
                        const FilterArrays* arrays, int threads) {
  try {
    filter(*sizes, *weights, *arrays, threads);
    return 0;
  } catch (...) {
    return 1;
  }
}

// Writes the gradients at the outputs of all products, given those of the results and the arrays
// that planet_bayes_filter has written. Returns 0, or 1 without memory.
int planet_bayes_filter_gradient(const FilterSizes* sizes, const FilterWeights* weights,
                                 const FilterArrays* arrays, const FilterGradients* gradients,
                                 int threads) {
  try {
    filter_gradient(*sizes, *weights, *arrays, *gradients, threads);
    return 0;
  } catch (...) {
    return 1;
  }
}

// Writes out [G, N, outputs] of a dense layer; see layer.hpp. The inputs have contiguous rows.
// Returns 0, or 1 without memory.
int planet_bayes_layer(const LayerSizes* sizes, const float* in, const Strides* in_strides,
                       const float* weight, const Strides* weight_strides, const float* bias,
                       float* out, int threads) {
  try {
    layer_forward(*sizes, in, *in_strides, weight, *weight_strides, bias, out, threads);
    return 0;
  } catch (...) {
    return 1;
  }
}

// Writes the gradient at the product's output, and that of the inputs unless `to` is null. Returns
// 0, or 1 without memory.
int planet_bayes_input_gradient(const LayerSizes* sizes, const float* weight,
                                const Strides* weight_strides, const float* out,
                                const float* gradient, float* at, float* to, int threads) {
  try {
    input_gradient(*sizes, weight, *weight_strides, out, gradient, at, to, threads);
    return 0;
  } catch (...) {
    return 1;
  }
}

// Writes the gradients of weights and, unless `to_bias` is null, biases. Returns 0, or 1 without
// memory.
int planet_bayes_weight_gradient(const LayerSizes* sizes, const float* in,
                                 const Strides* in_strides, const float* at,
                                 const Strides* at_strides, float* to, float* to_bias,
                                 int threads) {
  try {
    weight_gradient(*sizes, in, *in_strides, at, *at_strides, to, to_bias, threads);
    return 0;
  } catch (...) {
    return 1;
  }
}

int planet_bayes_lanes() { return LANES; }

}  // extern "C"
