"""GPU kernels run on the CPU under the sanitizers: translated, compiled and launched."""
