// The run-time compiler comes without the C headers; what a kernel takes from this one is here.
#pragma once
#define CHAR_BIT 8
#define INT_MAX 2147483647
#define INT_MIN (-INT_MAX - 1)
#define UINT_MAX 4294967295u
#define LLONG_MAX 9223372036854775807ll
#define ULLONG_MAX 18446744073709551615ull
