// What a kernel takes from this one, such as abs, is the compiler's own.
#pragma once
