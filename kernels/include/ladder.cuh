// What every rung of the decode ladder shares: the knobs, equal along the ladder, so that two
// neighbouring rungs differ in their idea alone.
#pragma once

#ifndef INFINITY  // the run-time compiler comes without <math.h>
#define INFINITY __int_as_float(0x7f800000)
#endif
#ifndef HEAD_DIM
#define HEAD_DIM 128
#endif
#ifndef DIMS_PER_THREAD  // block shape: a block has HEAD_DIM / DIMS_PER_THREAD threads
#define DIMS_PER_THREAD 1
#endif
#if HEAD_DIM / DIMS_PER_THREAD < 32  // never less than one warp
#undef DIMS_PER_THREAD
#define DIMS_PER_THREAD (HEAD_DIM / 32)
#endif
#ifndef UNROLL  // KV rows in one trip of the loop
#define UNROLL 4
#endif
#ifndef LAUNCH_BOUNDS
#define LAUNCH_BOUNDS 1
#endif

#if LAUNCH_BOUNDS
// Tells the compiler the block size, so that it may spend registers on loads in flight.
#define BOUNDED(threads) __launch_bounds__(threads)
#else
#define BOUNDED(threads)
#endif
