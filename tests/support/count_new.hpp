// Counts the program's calls of operator new, to show that a call of the library allocates nothing.
#pragma once

// Calls so far, of every form of operator new, on every thread.
long long operator_new_calls() noexcept;
