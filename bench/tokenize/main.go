// Command tokenize tokenizes texts again and again for bench/tokens.py, which times the
// tokenizers library in turns with it.
//
// Its argument is a model directory. Standard input has a line of JSON, the list of texts, and then
// a line for each pass to run. Standard output gets a line for each pass: seconds, tokens and the
// sha256 of the ids (int32, little endian). It runs on the calling goroutine's thread alone.
package main

import (
	"bufio"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"log"
	"os"
	"time"

	"github.com/sie-engine/sie/runtime/tokenizer"
)

func main() {
	if err := run(os.Args[1]); err != nil {
		log.Fatal(err)
	}
}

func run(dir string) error {
	t, err := tokenizer.Load(dir)
	if err != nil {
		return err
	}
	defer t.Close()
	in := bufio.NewReader(os.Stdin)
	line, err := in.ReadBytes('\n')
	if err != nil {
		return err
	}
	var texts []string
	if err := json.Unmarshal(line, &texts); err != nil {
		return err
	}
	var b tokenizer.Batch
	for {
		if _, err := in.ReadBytes('\n'); err != nil {
			return nil // the end of the input
		}
		start := time.Now()
		if err := t.Encode(&b, texts, tokenizer.Options{}); err != nil {
			return err
		}
		took := time.Since(start)
		sum := sha256.New()
		if err := binary.Write(sum, binary.LittleEndian, b.IDs); err != nil {
			return err
		}
		fmt.Printf("%.9f %d %x\n", took.Seconds(), len(b.IDs), sum.Sum(nil))
	}
}
