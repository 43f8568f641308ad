// compare.h — measures how near two results are.
#ifndef SIE_CSRC_TESTS_COMPARE_H
#define SIE_CSRC_TESTS_COMPARE_H

#include <math.h>
#include <string.h>

#include <vector>

// The cosine of a and b; 1 if both are zero.
inline double cosine(const float *a, const float *b, int n) {
  double ab = 0, aa = 0, bb = 0;
  for (int i = 0; i < n; i++) {
    double x = static_cast<double>(a[i]), y = static_cast<double>(b[i]);
    ab += x * y;
    aa += x * x;
    bb += y * y;
  }
  return aa == 0 && bb == 0 ? 1 : ab / sqrt(aa * bb);
}

// Infinite if the lengths differ, or if a difference is NaN.
inline double largest_difference(const std::vector<float> &a, const std::vector<float> &b) {
  double largest = a.size() == b.size() ? 0 : INFINITY;
  for (size_t i = 0; i < a.size() && i < b.size(); i++) {
    double d = fabs(static_cast<double>(a[i]) - static_cast<double>(b[i]));
    if (isnan(d)) return INFINITY;
    largest = fmax(largest, d);
  }
  return largest;
}

inline bool same_bits(const std::vector<float> &a, const std::vector<float> &b) {
  return a.size() == b.size() && (a.empty() || memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0);
}

#endif  // SIE_CSRC_TESTS_COMPARE_H
