// What differs between the two places where a kernel is run; all else is the same source.
#pragma once
#ifdef __wasm__
#include "wasm.h"
#else
#include "linux.h"
#endif
