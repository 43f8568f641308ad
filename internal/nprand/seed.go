package nprand

// seedWords returns SeedSequence(seed).generate_state(4, uint64): hashing that spreads any seed
// over all bits (O'Neill 2015, "Developing a seed_seq alternative").
func seedWords(seed uint64) [4]uint64 {
	entropy := [4]uint32{uint32(seed), uint32(seed >> 32)}
	hash := uint32(0x43b0d7e5)
	mangle := func(v uint32) uint32 {
		v ^= hash
		hash *= 0x931e8875
		v *= hash
		return v ^ v>>16
	}
	var pool [4]uint32
	for i := range pool {
		pool[i] = mangle(entropy[i])
	}
	for from := range pool {
		for to := range pool {
			if from == to {
				continue
			}
			mixed := 0xca01f9dd*pool[to] - 0x4973f715*mangle(pool[from])
			pool[to] = mixed ^ mixed>>16
		}
	}

	hash = 0x8b51f9dd
	var out [4]uint64
	for i := range 8 {
		v := pool[i%4] ^ hash
		hash *= 0x58f38ded
		v *= hash
		out[i/2] |= uint64(v^v>>16) << (32 * (i % 2))
	}
	return out
}
