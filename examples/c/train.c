/* Fits y = 3x + 2 by gradient descent: train --rate=0.1 --steps=200 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static double option(int count, char **words, const char *name, double otherwise) {
  size_t length = strlen(name);
  for (int i = 1; i < count; i++)
    if (!strncmp(words[i], name, length) && words[i][length] == '=')
      return atof(words[i] + length + 1);
  return otherwise;
}

int main(int count, char **words) {
  double rate = option(count, words, "--rate", 0.1), a = 0, b = 0;
  int steps = option(count, words, "--steps", 200);
  for (int step = 1; step <= steps; step++) {
    double loss = 0, da = 0, db = 0;
    for (int i = 0; i < 64; i++) {
      double x = i / 32.0 - 1, error = a * x + b - (3 * x + 2);
      loss += error * error / 64;
      da += 2 * error * x / 64;
      db += 2 * error / 64;
    }
    a -= rate * da;
    b -= rate * db;
    printf("step %d loss=%.6f\n", step, loss);
    fflush(stdout);
    usleep(10000);
  }
  return 0;
}
