// What a kernel may call of the C library, named so that it is linked with the runner once and a page
// needs no library to link with.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NAMED(name) (const void*)name,
const void* const lab_library[] = {
    NAMED(acos) NAMED(acosf) NAMED(acosh) NAMED(acoshf) NAMED(asin) NAMED(asinf) NAMED(asinh)
    NAMED(asinhf) NAMED(atan) NAMED(atanf) NAMED(atan2) NAMED(atan2f) NAMED(atanh) NAMED(atanhf)
    NAMED(cbrt) NAMED(cbrtf) NAMED(ceil) NAMED(ceilf) NAMED(copysign) NAMED(copysignf) NAMED(cos)
    NAMED(cosf) NAMED(cosh) NAMED(coshf) NAMED(erf) NAMED(erff) NAMED(erfc) NAMED(erfcf) NAMED(exp)
    NAMED(expf) NAMED(exp2) NAMED(exp2f) NAMED(expm1) NAMED(expm1f) NAMED(fabs) NAMED(fabsf)
    NAMED(fdim) NAMED(fdimf) NAMED(floor) NAMED(floorf) NAMED(fma) NAMED(fmaf) NAMED(fmax)
    NAMED(fmaxf) NAMED(fmin) NAMED(fminf) NAMED(fmod) NAMED(fmodf) NAMED(frexp) NAMED(frexpf)
    NAMED(hypot) NAMED(hypotf) NAMED(ilogb) NAMED(ilogbf) NAMED(ldexp) NAMED(ldexpf) NAMED(lgamma)
    NAMED(lgammaf) NAMED(llrint) NAMED(llrintf) NAMED(llround) NAMED(llroundf) NAMED(log)
    NAMED(logf) NAMED(log10) NAMED(log10f) NAMED(log1p) NAMED(log1pf) NAMED(log2) NAMED(log2f)
    NAMED(logb) NAMED(logbf) NAMED(lrint) NAMED(lrintf) NAMED(lround) NAMED(lroundf) NAMED(modf)
    NAMED(modff) NAMED(nearbyint) NAMED(nearbyintf) NAMED(nextafter) NAMED(nextafterf) NAMED(pow)
    NAMED(powf) NAMED(remainder) NAMED(remainderf) NAMED(remquo) NAMED(remquof) NAMED(rint)
    NAMED(rintf) NAMED(round) NAMED(roundf) NAMED(scalbln) NAMED(scalblnf) NAMED(scalbn)
    NAMED(scalbnf) NAMED(sin) NAMED(sinf) NAMED(sinh) NAMED(sinhf) NAMED(sqrt) NAMED(sqrtf)
    NAMED(tan) NAMED(tanf) NAMED(tanh) NAMED(tanhf) NAMED(tgamma) NAMED(tgammaf) NAMED(trunc)
    NAMED(truncf) NAMED(memcmp) NAMED(strlen) NAMED(abs) NAMED(labs) NAMED(printf) NAMED(puts)
    NAMED(putchar)
};
