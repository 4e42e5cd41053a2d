// The order in which the tiles of a matrix are gone through: BAND rows of tiles, column by column,
// so that blocks that run together share rows and columns in the L2.
#pragma once

struct TilePlace {
  int down, across;  // in tiles
};

__device__ __forceinline__ TilePlace tile_of(int index, int down, int across) {
  const int band = index / (BAND * across) * BAND, in_band = index % (BAND * across);
  const int band_rows = min(BAND, down - band);
  return {band + in_band % band_rows, in_band / band_rows};
}
