// printf(), size_t and assert() need no header in a kernel: this one only stops the complaint.
#pragma once
