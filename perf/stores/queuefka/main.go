// Drives queuefka for ../native.py: append frames from the input, read all of a log, show it as frames.
//
// A frame is a value behind its length, a little-endian uint32. What is printed are the nanoseconds between opening
// and closing. Any failure ends the program with the reason.
package main

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"strconv"
	"time"

	"github.com/ubergarm/queuefka"
)

const slabBytes = 64 << 20

func main() {
	log.SetFlags(0)
	if len(os.Args) < 3 {
		log.Fatal("usage: program append DIR BATCH durable|written | read DIR | show DIR")
	}
	directory := os.Args[2]
	switch os.Args[1] {
	case "append":
		batch, err := strconv.Atoi(os.Args[3])
		check(err)
		fmt.Println(appendAll(directory, frames(os.Stdin), batch, os.Args[4] == "durable").Nanoseconds())
	case "read":
		begun := time.Now()
		each(directory, func([]byte) {})
		fmt.Println(time.Since(begun).Nanoseconds())
	case "show":
		out := bufio.NewWriter(os.Stdout)
		each(directory, func(value []byte) {
			check(binary.Write(out, binary.LittleEndian, uint32(len(value))))
			_, err := out.Write(value)
			check(err)
		})
		check(out.Flush())
	default:
		log.Fatalf("%q is no command", os.Args[1])
	}
}

func appendAll(directory string, values [][]byte, batch int, durable bool) time.Duration {
	writer, err := queuefka.NewWriter(directory, slabBytes)
	check(err)
	begun := time.Now()
	for first := 0; first < len(values); first += batch {
		for _, value := range values[first:min(first+batch, len(values))] {
			check(writer.Write(value))
		}
		check(writer.Flush())
		if durable {
			syncNewest(directory)
		}
	}
	took := time.Since(begun)
	check(writer.Close())
	return took
}

// syncNewest syncs the segment that is written and the one before it, which a batch may have begun in.
func syncNewest(directory string) {
	slabs := queuefka.SlabFiles(directory)
	for _, path := range slabs[max(len(slabs)-2, 0):] {
		file, err := os.Open(path)
		check(err)
		check(file.Sync())
		check(file.Close())
	}
}

func each(directory string, take func([]byte)) {
	reader, err := queuefka.NewReader(directory, 0)
	check(err)
	for {
		value, err := reader.Read()
		if errors.Is(err, queuefka.ErrEndOfLog) {
			return
		}
		check(err)
		take(value)
	}
}

func frames(in io.Reader) [][]byte {
	var values [][]byte
	from := bufio.NewReaderSize(in, 1<<20)
	for {
		var size uint32
		err := binary.Read(from, binary.LittleEndian, &size)
		if errors.Is(err, io.EOF) {
			return values
		}
		check(err)
		value := make([]byte, size)
		_, err = io.ReadFull(from, value)
		check(err)
		values = append(values, value)
	}
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
