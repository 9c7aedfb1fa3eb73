import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.SerializationFeature;
import java.io.File;
import java.math.BigInteger;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.apache.avro.Schema;
import org.apache.avro.SchemaNormalization;
import org.apache.avro.generic.GenericData;
import org.apache.avro.generic.GenericDatumReader;
import org.apache.avro.generic.GenericFixed;
import org.apache.avro.generic.GenericRecord;
import org.apache.avro.io.BinaryDecoder;
import org.apache.avro.io.DecoderFactory;

/**
 * Decodes each FILE (single-object encoding) with SCHEMA alone and prints one line of JSON: a record is an object with
 * its full name under "", an enum its symbol, bytes and fixed are hexadecimal, and a union is what it holds. A sibling
 * of tests/python/golden.py, whose lines must be the same.
 *
 * <pre>java -cp 'JARS/*' tests/java/Golden.java SCHEMA FILE...</pre>
 */
public final class Golden {
    private static final int HEADER_BYTES = 10;

    public static void main(String[] args) throws Exception {
        Schema schema = new Schema.Parser().parse(new File(args[0]));
        // The header names the schema by the fingerprint of its canonical form, little-endian.
        byte[] fingerprint = SchemaNormalization.parsingFingerprint("CRC-64-AVRO", schema);
        var reader = new GenericDatumReader<GenericRecord>(schema);
        var json = new ObjectMapper().configure(SerializationFeature.ORDER_MAP_ENTRIES_BY_KEYS, true);
        for (String file : Arrays.asList(args).subList(1, args.length)) {
            byte[] bytes = Files.readAllBytes(Path.of(file));
            if (bytes[0] != (byte) 0xC3 || bytes[1] != 1
                    || !Arrays.equals(Arrays.copyOfRange(bytes, 2, HEADER_BYTES), fingerprint)) {
                throw new IllegalArgumentException("not a single object of this schema: " + file);
            }
            BinaryDecoder decoder =
                    DecoderFactory.get().binaryDecoder(bytes, HEADER_BYTES, bytes.length - HEADER_BYTES, null);
            GenericRecord record = reader.read(null, decoder);
            if (!decoder.isEnd()) {
                throw new IllegalArgumentException("bytes are left over: " + file);
            }
            System.out.println(json.writeValueAsString(plain(record)));
        }
    }

    private static Object plain(Object value) {
        if (value instanceof GenericRecord record) {
            Map<String, Object> fields = new TreeMap<>();
            fields.put("", record.getSchema().getFullName());
            for (Schema.Field field : record.getSchema().getFields()) {
                fields.put(field.name(), plain(record.get(field.pos())));
            }
            return fields;
        }
        if (value instanceof List<?> list) {
            List<Object> items = new ArrayList<>();
            list.forEach(item -> items.add(plain(item)));
            return items;
        }
        if (value instanceof Map<?, ?> map) {
            Map<String, Object> entries = new TreeMap<>();
            map.forEach((key, item) -> entries.put(key.toString(), plain(item)));
            return entries;
        }
        if (value instanceof GenericFixed fixed) {
            return HexFormat.of().formatHex(fixed.bytes());
        }
        if (value instanceof ByteBuffer buffer) {
            byte[] bytes = new byte[buffer.remaining()];
            buffer.duplicate().get(bytes);
            return HexFormat.of().formatHex(bytes);
        }
        if (value instanceof CharSequence || value instanceof GenericData.EnumSymbol) {
            return value.toString();
        }
        // As their bits: two languages print the same number differently.
        if (value instanceof Double number) {
            return "double:" + HexFormat.of().toHexDigits(Double.doubleToLongBits(number));
        }
        if (value instanceof Float number) {
            return "float:" + HexFormat.of().toHexDigits(Float.floatToIntBits(number));
        }
        if (value instanceof Integer || value instanceof Long) {
            return BigInteger.valueOf(((Number) value).longValue());
        }
        return value;
    }
}
