// Calls the native kernel with arrays of exactly the sizes that it may read and write, for a run
// under sanitizers. `native_driver SEED COUNT` does COUNT problems of random sizes.

#include "../src/planet_bayes/models/kernels/native.cpp"

#include <cstdio>
#include <cstdlib>
#include <random>

using Array = std::vector<float>;

int main(int, char** words) {
  std::mt19937 random(std::atoi(words[1]));
  const auto below = [&](int most) { return 1 + int(random() % most); };
  const auto numbers = [&](std::size_t count) {
    Array values(count);
    for (float& value : values) value = float(random() % 2001) / 1000.f - 1.f;
    values.shrink_to_fit();
    return values;
  };
  for (int number = 0; number < std::atoi(words[2]); ++number) {
    const int P = below(3), A = below(7), D = below(37), S = below(37), X = below(37);
    const int L = below(4) - 1, U = below(37), B = below(3), N = below(130), H = below(3);
    const Sizes sizes{P, A, D, S, X, L, U, int32_t(random() % 3), 0.1f, 2.f};
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
    const int columns = random() % 2 ? N : 1;
    Array deter = numbers(P * B * D), stoch = numbers(P * B * S), actions = numbers(B * N * H * A);
    const Array noise = numbers(std::size_t(H) * P * B * columns * S);
    const bool noisy = random() % 2, broken = number % 4 == 0;
    if (broken) actions[random() % actions.size()] = number % 8 ? INFINITY : NAN;
    Array rewards(std::size_t(B) * N * P * H, 1e30f);
    const int failed = planet_bayes_imagine(model, B, N, H, deter.data(), stoch.data(),
                                            actions.data(), noisy ? noise.data() : nullptr, columns,
                                            below(3), rewards.data());
    planet_bayes_free(model);
    int lost = 0;
    for (float reward : rewards) lost += !(std::fabs(reward) < 1e29f);
    if (failed || (lost > 0) != broken) {
      std::printf("problem %d: failed %d, %d rewards are not finite\n", number, failed, lost);
      return 1;
    }
  }
  std::puts("sound");
  return 0;
}
