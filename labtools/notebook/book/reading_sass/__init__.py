"""How to read SASS: listings and their opcodes."""
