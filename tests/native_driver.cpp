// Calls the native kernels with arrays of exactly the sizes that they may read and write, for a run
// under sanitizers. `native_driver SEED COUNT` does COUNT problems of random sizes with each.

#include <cstdio>
#include <cstdlib>
#include <random>

#include "../src/planet_bayes/models/kernels/cpp/native.cpp"

using Array = std::vector<float>;

std::mt19937 random_numbers;

int below(int most) { return 1 + int(random_numbers() % most); }

Array numbers(std::size_t count) {
  Array values(count);
  for (float& value : values) value = float(random_numbers() % 2001) / 1000.f - 1.f;
  values.shrink_to_fit();
  return values;
}

int not_finite_of(const Array& values) {
  int lost = 0;
  for (float value : values) lost += !(std::fabs(value) < 1e29f);
  return lost;
}

bool imagines(int number) {
  const int P = below(3), A = below(7), D = below(37), S = below(37), X = below(37);
  const int L = below(4) - 1, U = below(37), B = below(3), N = below(130), H = below(3);
  const Sizes sizes{P, A, D, S, X, L, U, int32_t(random_numbers() % 3), 0.1f, 2.f};
  const int ins[] = {S + A, X + D, X + D, D, X}, outs[] = {X, 2 * D, D, X, 2 * S};
  std::vector<Array> kept;
  std::vector<const float*> layers, head;
  const auto keep = [&](std::vector<const float*>& to, std::size_t count) {
    kept.push_back(numbers(count));
    to.push_back(kept.back().data());
  };
  for (int i = 0; i < 5; ++i) {
    keep(layers, std::size_t(P) * ins[i] * outs[i]);
    keep(layers, std::size_t(P) * outs[i]);
  }
  for (int layer = 0; layer <= L; ++layer) {
    const int out = layer == L ? 1 : U;
    keep(head, std::size_t(layer ? U : D + S) * out);
    keep(head, out);
  }
  void* model = planet_bayes_pack(&sizes, layers.data(), head.data());
  const int columns = random_numbers() % 2 ? N : 1;
  Array deter = numbers(P * B * D), stoch = numbers(P * B * S), actions = numbers(B * N * H * A);
  const Array noise = numbers(std::size_t(H) * P * B * columns * S);
  const bool noisy = random_numbers() % 2, broken = number % 4 == 0;
  if (broken) actions[random_numbers() % actions.size()] = number % 8 ? INFINITY : NAN;
  Array rewards(std::size_t(B) * N * P * H, 1e30f);
  Array alone = rewards, features(std::size_t(H) * P * B * N * (D + S), 1e30f);
  const auto roll_out = [&](float* to, float* states) {
    return planet_bayes_roll_out(model, B, N, H, deter.data(), stoch.data(), actions.data(),
                                 noisy ? noise.data() : nullptr, columns, below(3), to, states);
  };
  const bool failed = roll_out(rewards.data(), features.data()) || roll_out(alone.data(), nullptr);
  planet_bayes_free(model);
  const int lost = not_finite_of(rewards), gone = not_finite_of(features);
  const bool same = !std::memcmp(rewards.data(), alone.data(), rewards.size() * sizeof(float));
  const bool sound = !failed && (lost > 0) == broken && gone == lost * (D + S) && same;
  if (!sound)
    std::printf("problem %d: failed %d, %d rewards and %d numbers of states are not finite, %s\n",
                number, failed, lost, gone, same ? "same rewards" : "other rewards without states");
  return sound;
}

bool filters(int number) {
  const int E = below(3), T = below(4), B = below(70), A = below(7);
  const int D = below(37), S = below(37), X = below(37);
  const FilterSizes sizes{E, T, B, A, D, S, X, int32_t(random_numbers() % 2), 0.1f};
  const std::size_t rows = std::size_t(E) * T * B, more = std::size_t(E) * (T + 1) * B;
  const Array input = numbers(E * (S + A) * X), input_bias = numbers(E * X);
  const Array gates = numbers(E * (X + D) * 2 * D), gates_bias = numbers(E * 2 * D);
  const Array candidate = numbers(E * (X + D) * D), candidate_bias = numbers(E * D);
  const Array hidden = numbers(E * D * X), out = numbers(E * X * 2 * S),
              out_bias = numbers(E * 2 * S);
  const FilterWeights weights{input.data(),      input_bias.data(), gates.data(),
                              gates_bias.data(), candidate.data(),  candidate_bias.data(),
                              hidden.data(),     out.data(),        out_bias.data()};
  const Array part = numbers(rows * X), action = numbers(rows * A), noise = numbers(rows * S);
  Array sa(more * (S + A)), xh(more * (X + D)), xrh(rows * (X + D)), r_u(rows * 2 * D);
  Array proposed(rows * D), values(rows * X), mean(rows * S), std(rows * S);
  const FilterArrays arrays{part.data(),   action.data(), noise.data(), sa.data(),
                            xh.data(),     xrh.data(),    r_u.data(),   proposed.data(),
                            values.data(), mean.data(),   std.data()};
  const int threads = below(3);
  bool failed = planet_bayes_filter(&sizes, &weights, &arrays, threads);
  const Array g_deter = numbers(rows * D), g_stoch = numbers(rows * S);
  const Array g_mean = numbers(rows * S), g_std = numbers(rows * S);
  Array at_input(rows * X, 1e30f), at_gates(rows * 2 * D, 1e30f), at_candidate(rows * D, 1e30f);
  Array at_hidden(rows * X, 1e30f), at_out(rows * 2 * S, 1e30f);
  const FilterGradients gradients{g_deter.data(),      g_stoch.data(),   g_mean.data(),
                                  g_std.data(),        at_input.data(),  at_gates.data(),
                                  at_candidate.data(), at_hidden.data(), at_out.data()};
  failed |= planet_bayes_filter_gradient(&sizes, &weights, &arrays, &gradients, threads);
  const int lost = not_finite_of(sa) + not_finite_of(std) + not_finite_of(at_input) +
                   not_finite_of(at_gates) + not_finite_of(at_candidate) +
                   not_finite_of(at_hidden) + not_finite_of(at_out);
  if (failed || lost) std::printf("filter %d: failed %d, %d not finite\n", number, failed, lost);
  return !failed && !lost;
}

bool layers(int number) {
  const int G = below(3), N = below(200), I = below(37), O = below(37);
  const LayerSizes sizes{G, N, I, O, int32_t(random_numbers() % 3) - 1};
  const Array in = numbers(std::size_t(G) * N * I), weight = numbers(std::size_t(G) * I * O);
  const Array bias = numbers(std::size_t(G) * O), gradient = numbers(std::size_t(G) * N * O);
  Array out(gradient.size(), 1e30f), at = gradient, to_in(in.size(), 1e30f);
  Array to_weight(weight.size(), 1e30f), to_bias(bias.size(), 1e30f);
  const bool turned = random_numbers() % 2;
  const Strides in_strides{int64_t(N) * I, I, 1}, at_strides{int64_t(N) * O, O, 1};
  const Strides weight_strides{int64_t(I) * O, turned ? 1 : O, turned ? I : 1};
  const int threads = below(3);
  bool failed = planet_bayes_layer(&sizes, in.data(), &in_strides, weight.data(), &weight_strides,
                                   bias.data(), out.data(), threads);
  failed |= planet_bayes_input_gradient(&sizes, weight.data(), &weight_strides, out.data(),
                                        gradient.data(), at.data(),
                                        number % 3 ? to_in.data() : nullptr, threads);
  failed |= planet_bayes_weight_gradient(&sizes, in.data(), &in_strides, at.data(), &at_strides,
                                         to_weight.data(), to_bias.data(), threads);
  const int lost = not_finite_of(out) + not_finite_of(at) + not_finite_of(to_weight) +
                   not_finite_of(to_bias) + (number % 3 ? not_finite_of(to_in) : 0);
  if (failed || lost) std::printf("layer %d: failed %d, %d not finite\n", number, failed, lost);
  return !failed && !lost;
}

int main(int, char** words) {
  random_numbers.seed(std::atoi(words[1]));
  for (int number = 0; number < std::atoi(words[2]); ++number)
    if (!imagines(number) || !filters(number) || !layers(number)) return 1;
  std::puts("sound");
  return 0;
}
